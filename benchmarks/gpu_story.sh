#!/usr/bin/env bash
# Two GPUs for 25 minutes: the story (docs/story.md), every GPU test, parity, and the rehearsal of the run on eight.
#   benchmarks/gpu_story.sh               writes to $OUT; `done` is there when it has ended, times.txt says what took how long
#   benchmarks/gpu_story.sh --one         one GPU for as long: the search, both ends with samplers, tests, parity
#   benchmarks/gpu_story.sh --dry-run     the commands, of --one too; starts nothing
# Needs torch with CUDA, our dependencies, py-spy on PATH. Afterwards, anywhere:
#   python -m benchmarks.story write --from $OUT/cells --from $OUT/ends --from $OUT/search --measured-on "1x NVIDIA H200"
# After --one, an earlier results file stands for what it left out: --from benchmarks/results/story_….json first.
set -uo pipefail
cd "$(dirname "$0")/.."
export PYTHONPATH="$PWD:${PYTHONPATH:-}" PYTHONUNBUFFERED=1
python="${PYTHON:-python3}"
out="${OUT:-/tmp/gpu_story}"
is_dry=false
num_gpus=2
for option in "$@"; do
  case "$option" in
    --dry-run) is_dry=true ;;
    --one) num_gpus=1 ;;
    *) echo "unknown option $option; allowed: --one, --dry-run" >&2; exit 2 ;;
  esac
done
pytest=("$python" -m pytest -m gpu -q -p no:randomly -p no:cacheprovider)
tests=(tests/pipeline/transport tests/pipeline/test_faults.py tests/pipeline/train tests/gpu)

refuse() {  # REASON: told where the one who waits for `done` looks
  echo "$1" | tee "$out/times.txt" >&2
  exit 2
}

check() {  # a hold is short: what is missing must show in its first seconds
  command -v py-spy >/dev/null || refuse "py-spy is not on PATH: no launch would have stacks; add the bin folder of its install"
  local why
  why="$("$python" -c "
import flashprof.cli.main, pipeline.cli.main, benchmarks.story, benchmarks.parity, pytest, torch
found = torch.cuda.device_count()
raise SystemExit(None if found >= $num_gpus else f'{found} GPUs of $num_gpus are here; one GPU: --one')" 2>&1)" ||
    refuse "$(tail -n 1 <<<"$why")"
}

if ! $is_dry; then
  mkdir -p "$out"
  done_file="$out/done"
  trap 'touch "$done_file"' EXIT
  check
fi

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

ends() {  # both find the compiler's caches filled by what ran before
  story 0 190 ends run_all,run_none
}

tests_and_parity() {
  beside step 0 230 parity "$python" -m benchmarks.parity --device cuda --lanes 8 --cache "$out/caches" \
    --results "$out"
  step 0 230 tests "${pytest[@]}" "${tests[@]}"
  wait
}

first_gpu() {
  # A round of all cells takes ten minutes behind a start of 75 s.
  story 0 800 cells cells
  ends
  tests_and_parity
}

second_gpu() {
  # Decided after 190 s; what it leaves is the search's, which took 90 windows of ten seconds in simulations.
  story 1 1240 search compare,bisect
}

if [ "$num_gpus" = 1 ]; then
  story 0 1080 search bisect
  ends
  tests_and_parity
else
  beside first_gpu
  beside second_gpu
  wait
  step 0,1 40 tests_on_two "${pytest[@]}" tests/pipeline/transport
  export OUT="$out/two"
  step 0,1 290 two bash benchmarks/eight_gpus.sh --two
fi
