#!/usr/bin/env bash
# The full run on eight GPUs, in one call of at most ten minutes; writes to $OUT. Five runs, each with a limit of its own.
#   benchmarks/eight_gpus.sh              none and all at 5+3 (tables of all lanes, flamegraph), then 6+2 and 4+4
#   benchmarks/eight_gpus.sh --rehearse   the same at the preset tiny on CPUs
#   benchmarks/eight_gpus.sh --dry-run    the commands; starts nothing; with --rehearse those of the rehearsal
# TARGET_TOK_PER_S and DRAFTER_TOK_PER_S: what one card does alone (benchmarks.target_forward, benchmarks.drafter_step); with
# them the splits are foretold first, so that the prediction is on record before the run.
set -uo pipefail
cd "$(dirname "$0")/.."
export PYTHONPATH="$PWD:${PYTHONPATH:-}" PYTHONUNBUFFERED=1
python="${PYTHON:-python3}"
out="${OUT:-/tmp/eight_gpus}"
is_dry=false
preset=qwen3-8b-random
train=""
everything=all
windows=(--set windows.num_measure=4 --set windows.measure_s=6 --set windows.steady_timeout_s=25)
profile=(--set windows.num_profile=2 --set windows.profile_s=5)
limit_s=120
sweep_limit_s=100
for option in "$@"; do
  case "$option" in
    --dry-run) is_dry=true ;;
    --rehearse)
      preset=tiny
      train="--device cpu"
      # Eight processes that compile at once on two cores do nothing else for minutes.
      everything=all,-compile,-compile-target,-compile-drafter,-warmup
      windows=(--set windows.num_measure=2 --set windows.measure_s=5 --set windows.steady_timeout_s=15)
      profile=(--set windows.num_profile=2 --set windows.profile_s=4)
      export OMP_NUM_THREADS=1 ;;
    *) echo "unknown option $option; allowed: --rehearse, --dry-run" >&2; exit 2 ;;
  esac
done
$is_dry || mkdir -p "$out"

step() {  # LIMIT_S NAME COMMAND …: one that fails or takes too long is told, and the next one runs
  local limit="$1" name="$2"
  shift 2
  if $is_dry; then printf '%q ' timeout "$limit" "$@"; echo; return; fi
  echo "== $name"
  timeout --signal=INT --kill-after=25 "$limit" "$@" >"$out/$name.txt" 2>"$out/$name.err"
  local status=$?
  tail -n 25 "$out/$name.txt"
  [ "$status" -eq 0 ] || { echo "$name: status $status"; tail -n 3 "$out/$name.err"; }
}

cell() {  # LIMIT_S TOPOLOGY none|all SETTINGS …
  local limit="$1" topology="$2" name="$3" toggles="$3"
  shift 3
  [ "$name" = all ] && toggles="$everything"
  step "$limit" "run-$topology-$name" "$python" -m flashprof.cli run --subject pipeline --preset "$preset" \
    --topology "$topology" --toggles "$toggles" --train "$train" --reports "$out/reports" --run-id "$topology-$name" \
    "${windows[@]}" "$@"
}

$is_dry || { command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=name,memory.total --format=csv,noheader; }
if [ -n "${TARGET_TOK_PER_S:-}" ] && [ -n "${DRAFTER_TOK_PER_S:-}" ]; then
  step 30 predicted "$python" -m benchmarks.scaling predict \
    --target-tok-per-s "$TARGET_TOK_PER_S" --drafter-tok-per-s "$DRAFTER_TOK_PER_S"
fi
# The answer first: if time runs out, what is missing is the sweep.
cell "$limit_s" 5+3 all "${profile[@]}"
cell "$limit_s" 5+3 none "${profile[@]}"
for split in 6+2 4+4; do cell "$sweep_limit_s" "$split" all --set windows.num_profile=0; done
judged=("$out/reports/5+3-all" "$out/reports/6+2-all" "$out/reports/4+4-all")
if [ -n "${TARGET_TOK_PER_S:-}" ] && [ -n "${DRAFTER_TOK_PER_S:-}" ]; then
  step 30 judged "$python" -m benchmarks.scaling judge --preset "$preset" --results "$out" \
    --target-tok-per-s "$TARGET_TOK_PER_S" --drafter-tok-per-s "$DRAFTER_TOK_PER_S" "${judged[@]}"
fi
step 30 report "$python" -m flashprof.cli report "$out/reports"
$is_dry || { tar czf "$out/reports.tgz" --exclude=emitter -C "$out" reports && rm -rf "$out/reports"; }
