#!/usr/bin/env bash
# The full run on eight GPUs, in one call of at most ten minutes; writes to $OUT. Steps with a limit of its own each.
#   benchmarks/eight_gpus.sh              all and none at 5+3 (tables of all lanes, flamegraph), then all at 6+2 and 4+4
#   benchmarks/eight_gpus.sh --two        a rehearsal on two GPUs: all and none at 1+1, no sweep; under five minutes
#   benchmarks/eight_gpus.sh --rehearse   all of it at the preset tiny on CPUs
#   benchmarks/eight_gpus.sh --dry-run    the commands; starts nothing; with --rehearse those of the rehearsal
# TARGET_TOK_PER_S and DRAFTER_TOK_PER_S: what one card does alone; with them the splits are foretold first, so that the
# prediction is on record before the run. On GPUs they are known for the workload below (docs/scaling.md, 1+1).
set -uo pipefail
cd "$(dirname "$0")/.."
export PYTHONPATH="$PWD:${PYTHONPATH:-}" PYTHONUNBUFFERED=1
python="${PYTHON:-python3}"
out="${OUT:-/tmp/eight_gpus}"
is_dry=false
preset=qwen3-8b-random
train="--token-budget 8192 --anchors 512"
everything=all
target="${TARGET_TOK_PER_S:-40121}"
drafter="${DRAFTER_TOK_PER_S:-41489}"
batches=(--batch-tokens 6037)
spread=(--target-cv 0.18 --drafter-cv 0.31)
windows=(--set windows.num_measure=3 --set windows.measure_s=6 --set windows.steady_timeout_s=20)
profile=(--set windows.num_profile=2 --set windows.profile_s=4)
# From cold caches `all` takes 94 s to its first step on one H200, from warm ones 45, `none` 60.
first_limit_s=170
limit_s=130
sweep_limit_s=100
topology=5+3
splits=(6+2 4+4)
measured_on=()
if command -v nvidia-smi >/dev/null; then
  name="$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)"
  measured_on=(--measured-on "$(nvidia-smi --list-gpus | wc -l)x $name")
fi
for option in "$@"; do
  case "$option" in
    --dry-run) is_dry=true ;;
    --two) topology=1+1 splits=() ;;
    --rehearse)
      preset=tiny
      train="--device cpu"
      # Eight processes that compile at once on two cores do nothing else for minutes.
      everything=all,-compile,-compile-target,-compile-drafter,-warmup
      target="${TARGET_TOK_PER_S:-}" drafter="${DRAFTER_TOK_PER_S:-}" batches=() spread=() measured_on=()
      windows=(--set windows.num_measure=2 --set windows.measure_s=5 --set windows.steady_timeout_s=15)
      profile=(--set windows.num_profile=2 --set windows.profile_s=4)
      export OMP_NUM_THREADS=1 ;;
    *) echo "unknown option $option; allowed: --rehearse, --two, --dry-run" >&2; exit 2 ;;
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
alone=(--target-tok-per-s "$target" --drafter-tok-per-s "$drafter" "${spread[@]}")
if [ -n "$target" ] && [ -n "$drafter" ]; then
  step 20 predicted "$python" -m benchmarks.scaling predict "${alone[@]}" "${batches[@]}"
fi
# The answer first: if time runs out, what is missing is the sweep.
cell "$first_limit_s" "$topology" all "${profile[@]}"
cell "$limit_s" "$topology" none "${profile[@]}"
judged=("$out/reports/$topology-all")
for split in "${splits[@]}"; do
  cell "$sweep_limit_s" "$split" all --set windows.num_profile=0
  judged+=("$out/reports/$split-all")
done
if [ -n "$target" ] && [ -n "$drafter" ]; then
  step 20 judged "$python" -m benchmarks.scaling judge --preset "$preset" --results "$out" "${measured_on[@]}" "${alone[@]}" \
    "${judged[@]}"
fi
step 20 report "$python" -m flashprof.cli report "$out/reports"
$is_dry || { tar czf "$out/reports.tgz" --exclude=emitter -C "$out" reports && rm -rf "$out/reports"; }
