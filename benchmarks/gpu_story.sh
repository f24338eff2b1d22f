#!/usr/bin/env bash
# GPUs for 26 minutes: the story (docs/story.md), every GPU test, parity, and on two the rehearsal of the run on eight.
# A call of a lent machine is shorter than that, so it runs behind the calls, which collect:
#   setsid nohup benchmarks/gpu_story.sh >/tmp/go.log 2>&1 </dev/null &      two GPUs; with --one: the search, both ends,
#                                                                           tests and parity, on one
#   benchmarks/gpu_story.sh --collect 560     waits until it has ended, so many seconds at most, and packs into $OUT
#   benchmarks/gpu_story.sh --dry-run         the commands, of --one too; starts nothing
# It writes to $STORY (/tmp/gpu_story), not to $OUT, which is emptied before each call; times.txt says what took how long.
# Needs torch with CUDA, our dependencies, py-spy on PATH, which it checks first. Afterwards, anywhere:
#   python -m benchmarks.story write --from STORY/cells --from STORY/ends --from STORY/search --measured-on "1x NVIDIA H200"
# After --one, an earlier results file stands for what it left out: --from benchmarks/results/story_….json first.
set -uo pipefail
cd "$(dirname "$0")/.."
export PYTHONPATH="$PWD:${PYTHONPATH:-}" PYTHONUNBUFFERED=1
source benchmarks/gpu_needs.bash
python="${PYTHON:-python3}"
story="${STORY:-/tmp/gpu_story}"
is_dry=false
num_gpus=2

collect() {  # SECONDS
  local until_s=$((SECONDS + $1))
  until [ -e "$story/done" ] || [ "$SECONDS" -ge "$until_s" ]; do sleep 1; done
  [ -e "$story/done" ] && echo "has ended" || echo "still runs"
  cat "$story/times.txt" 2>/dev/null
  tail -n 3 "$story"/*.log "$story"/*/parts/*.err 2>/dev/null
  # Reports travel in story-reports.tgz and eight_gpus.tgz already.
  tar czf "${OUT:-.}/gpu_story.tgz" --exclude=caches --exclude=emitter --exclude=reports -C "$(dirname "$story")" \
    "$(basename "$story")"
}

while [ $# -gt 0 ]; do
  case "$1" in
    --dry-run) is_dry=true ;;
    --one) num_gpus=1 ;;
    --collect) collect "${2:?seconds to wait}"; exit ;;
    *) echo "unknown option $1; allowed: --one, --collect SECONDS, --dry-run" >&2; exit 2 ;;
  esac
  shift
done
pytest=("$python" -m pytest -m gpu -q -p no:randomly -p no:cacheprovider)
tests=(tests/pipeline/transport tests/pipeline/test_faults.py tests/pipeline/train tests/gpu)

if ! $is_dry; then
  mkdir -p "$story"
  trap 'touch "$story/done"' EXIT
  check_gpus "$num_gpus" "$story/times.txt" --one
fi

step() {  # GPUS LIMIT_S NAME COMMAND …: one that fails or takes too long is told, and the next one runs
  local gpus="$1" limit="$2" name="$3"
  shift 3
  if $is_dry; then printf '%q ' "CUDA_VISIBLE_DEVICES=$gpus" timeout "$limit" "$@"; echo; return; fi
  local start_s=$SECONDS
  CUDA_VISIBLE_DEVICES="$gpus" timeout --signal=INT --kill-after=25 "$limit" "$@" >"$story/$name.log" 2>&1
  echo "$name: status $? after $((SECONDS - start_s)) s" >>"$story/times.txt"
}

beside() {  # COMMAND …: in the background; a dry run prints one line after the other
  if $is_dry; then "$@"; else "$@" & fi
}

parts() {  # GPU SECONDS FOLDER PARTS
  step "$1" "$(($2 + 25))" "$3" "$python" -m benchmarks.story measure --out "$story/$3" --only "$4" --seconds "$2"
}

ends() {  # both find the compiler's caches filled by what ran before
  parts 0 190 ends run_all,run_none
}

tests_and_parity() {
  # Parity took 165 s when its lanes shared caches and ran no cell twice.
  beside step 0 280 parity "$python" -m benchmarks.parity --device cuda --lanes 8 --cache "$story/caches" \
    --results "$story"
  step 0 230 tests "${pytest[@]}" "${tests[@]}"
  wait
}

first_gpu() {
  # A round of all cells takes ten minutes behind a start of 75 s.
  parts 0 750 cells cells
  ends
  tests_and_parity
}

second_gpu() {
  # Decided after 190 s; what it leaves is the search's, which took 90 windows of ten seconds in simulations.
  parts 1 1230 search compare,bisect
}

if [ "$num_gpus" = 1 ]; then
  parts 0 1070 search bisect
  ends
  tests_and_parity
else
  # First what would show a fault of the hand-over between GPUs.
  step 0,1 40 tests_on_two "${pytest[@]}" tests/pipeline/transport
  beside first_gpu
  beside second_gpu
  wait
  export OUT="$story/two" LIMIT_S=265
  step 0,1 290 two bash benchmarks/eight_gpus.sh --two
fi
