#!/usr/bin/env bash
# Two GPUs for 25 minutes: the story (docs/story.md), every GPU test, parity, and the rehearsal of the run on eight.
#   benchmarks/gpu_story.sh               writes to $OUT; `done` is there when it has ended, times.txt says what took how long
#   benchmarks/gpu_story.sh --dry-run     the commands; starts nothing
# Needs torch with CUDA, our dependencies, py-spy on PATH. Afterwards, anywhere:
#   python -m benchmarks.story write --from $OUT/cells --from $OUT/ends --from $OUT/search --measured-on "1x NVIDIA H200"
set -uo pipefail
cd "$(dirname "$0")/.."
export PYTHONPATH="$PWD:${PYTHONPATH:-}" PYTHONUNBUFFERED=1
python="${PYTHON:-python3}"
out="${OUT:-/tmp/gpu_story}"
is_dry=false
case "${1:-}" in
  "") ;;
  --dry-run) is_dry=true ;;
  *) echo "unknown option $1; allowed: --dry-run" >&2; exit 2 ;;
esac
$is_dry || mkdir -p "$out"
pytest=("$python" -m pytest -m gpu -q -p no:randomly -p no:cacheprovider)
tests=(tests/pipeline/transport tests/pipeline/test_faults.py tests/pipeline/train tests/gpu)

step() {  # GPUS LIMIT_S NAME COMMAND …: one that fails or takes too long is told, and the next one runs
  local gpus="$1" limit="$2" name="$3"
  shift 3
  if $is_dry; then printf '%q ' "CUDA_VISIBLE_DEVICES=$gpus" timeout "$limit" "$@"; echo; return; fi
  local start_s=$SECONDS
  CUDA_VISIBLE_DEVICES="$gpus" timeout --signal=INT --kill-after=25 "$limit" "$@" >"$out/$name.log" 2>&1
  echo "$name: status $? after $((SECONDS - start_s)) s" >>"$out/times.txt"
}

beside() {  # COMMAND …: in the background; a dry run prints one line after the other
  if $is_dry; then "$@"; else "$@" & fi
}

story() {  # GPU SECONDS FOLDER PARTS
  step "$1" "$(($2 + 25))" "$3" "$python" -m benchmarks.story measure --out "$out/$3" --only "$4" --seconds "$2"
}

first_gpu() {
  # A round of all cells takes ten minutes behind a start of 75 s; both ends then find the compiler's caches filled.
  story 0 800 cells cells
  story 0 190 ends run_all,run_none
  beside step 0 230 parity "$python" -m benchmarks.parity --device cuda --lanes 8 --cache "$out/caches" \
    --results "$out"
  step 0 230 tests "${pytest[@]}" "${tests[@]}"
  wait
}

second_gpu() {
  # Decided after 190 s; what it leaves is the search's, which took 90 windows of ten seconds in simulations.
  story 1 1240 search compare,bisect
}

beside first_gpu
beside second_gpu
wait
step 0,1 40 tests_on_two "${pytest[@]}" tests/pipeline/transport
export OUT="$out/two"
step 0,1 290 two bash benchmarks/eight_gpus.sh --two
$is_dry || touch "$out/done"
