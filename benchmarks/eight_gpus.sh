#!/usr/bin/env bash
# The full run on eight GPUs, in one call of at most ten minutes; leaves eight_gpus.tgz (run folders, page, logs) and the
# results file in $OUT, and packs after every run. Steps have a limit of their own each, all together LIMIT_S (570).
#   benchmarks/eight_gpus.sh              all and none at 5+3 (tables of all lanes, flamegraph), all at 4+4 and 6+2
#   benchmarks/eight_gpus.sh --two        a rehearsal on two GPUs: all and none at 1+1, no sweep; under five minutes
#   benchmarks/eight_gpus.sh --rehearse   all of it at the preset tiny on CPUs
#   benchmarks/eight_gpus.sh --dry-run    the commands; starts nothing; with --rehearse those of the rehearsal
# TARGET_TOK_PER_S and DRAFTER_TOK_PER_S: what one card does alone; with them the splits are foretold first, so that the
# prediction is on record before the run. On GPUs they are known for the workload below (docs/scaling.md, 1+1).
# Needs torch with CUDA, our dependencies, py-spy on PATH, which it checks first.
set -uo pipefail
cd "$(dirname "$0")/.."
export PYTHONPATH="$PWD:${PYTHONPATH:-}" PYTHONUNBUFFERED=1
python="${PYTHON:-python3}"
out="${OUT:-/tmp/eight_gpus}"
is_dry=false
num_gpus=8
end_s="${LIMIT_S:-570}"
preset=qwen3-8b-random
train="--token-budget 8192 --anchors 512"
everything=all
target="${TARGET_TOK_PER_S:-40571}"
drafter="${DRAFTER_TOK_PER_S:-44085}"
batches=(--batch-tokens 6037)
spread=(--target-cv 0.19 --drafter-cv 0.03)
windows=(--set windows.num_measure=3 --set windows.measure_s=6 --set windows.steady_timeout_s=20)
profile=(--set windows.num_profile=2 --set windows.profile_s=4)
# Compiled code is cached by GPU. Two H200s: a drafter is ready after 60 s on one that has compiled none, after 20 where
# it has; a target after 18 and 4. So the split with most drafters goes first, and the others find theirs warm.
first=4+4
first_limit_s=160
topology=5+3
limit_s=120
none_limit_s=125
splits=(6+2)
sweep_limit_s=90
measured_on=()
if command -v nvidia-smi >/dev/null; then
  name="$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)"
  measured_on=(--measured-on "$(nvidia-smi --list-gpus | wc -l)x $name")
fi
for option in "$@"; do
  case "$option" in
    --dry-run) is_dry=true ;;
    --two) first="" topology=1+1 limit_s=170 splits=() num_gpus=2 ;;
    --rehearse)
      preset=tiny num_gpus=0
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
source benchmarks/gpu_needs.bash

step() {  # LIMIT_S NAME COMMAND …: one that fails or takes too long is told, and the next one runs
  local limit="$1" name="$2"
  shift 2
  if $is_dry; then printf '%q ' timeout "$limit" "$@"; echo; return; fi
  # One that does not end when it is interrupted is killed 25 s later; what follows must still have its time.
  local left=$((end_s - SECONDS - 25 - reserve_s))
  [ "$limit" -le "$left" ] || limit="$left"
  [ "$limit" -ge 5 ] || { echo "== $name: no time is left"; return; }
  echo "== $name"
  timeout --signal=INT --kill-after=25 "$limit" "$@" >"$work/logs/$name.txt" 2>"$work/logs/$name.err"
  local status=$?
  tail -n 25 "$work/logs/$name.txt"
  [ "$status" -eq 0 ] || { echo "$name: status $status"; tail -n 3 "$work/logs/$name.err"; }
}

pack() {  # all that is there so far: the machine may be gone before the end
  $is_dry && return
  tar czf "$out/eight_gpus.part" --exclude=emitter -C "$work" reports logs && mv "$out/eight_gpus.part" "$out/eight_gpus.tgz"
}

cell() {  # LIMIT_S TOPOLOGY none|all SETTINGS …
  local limit="$1" topology="$2" name="$3" toggles="$3"
  shift 3
  [ "$name" = all ] && toggles="$everything"
  step "$limit" "run-$topology-$name" "$python" -m flashprof.cli run --subject pipeline --preset "$preset" \
    --topology "$topology" --toggles "$toggles" --train "$train" --reports "$work/reports" --run-id "$topology-$name" \
    "${windows[@]}" "$@"
  pack
}

sweep() {  # LIMIT_S TOPOLOGY
  cell "$1" "$2" all --set windows.num_profile=0
  judged+=("$work/reports/$2-all")
}

work="$out/work"
reserve_s=0
if ! $is_dry; then
  # Beside $out's own files: of a call's only eight come back, from two folders down at most (.library/device/README.md).
  work="$(mktemp -d)"
  trap 'rm -rf "$work"' EXIT
  mkdir -p "$out" "$work/reports" "$work/logs"
  [ "$num_gpus" = 0 ] || check_gpus "$num_gpus" "$out/refused.txt" --two
  command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=name,memory.total --format=csv,noheader
fi
alone=(--target-tok-per-s "$target" --drafter-tok-per-s "$drafter" "${spread[@]}")
if [ -n "$target" ] && [ -n "$drafter" ]; then
  step 20 predicted "$python" -m benchmarks.scaling predict "${alone[@]}" "${batches[@]}"
fi
reserve_s=40
judged=("$work/reports/$topology-all")
[ -z "$first" ] || sweep "$first_limit_s" "$first"
cell "$limit_s" "$topology" all "${profile[@]}"
cell "$none_limit_s" "$topology" none "${profile[@]}"
for split in "${splits[@]}"; do
  sweep "$sweep_limit_s" "$split"
done
reserve_s=0
if [ -n "$target" ] && [ -n "$drafter" ]; then
  step 20 judged "$python" -m benchmarks.scaling judge --preset "$preset" --results "$out" "${measured_on[@]}" "${alone[@]}" \
    "${judged[@]}"
fi
step 20 report "$python" -m flashprof.cli report "$work/reports"
pack
$is_dry || echo "packed: $out/eight_gpus.tgz"
