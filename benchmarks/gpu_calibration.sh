#!/usr/bin/env bash
# What this slice must show on a machine with GPUs, in one call; writes to $OUT. Kills run on cores that the GPU does not need.
set -uo pipefail
cd "$(dirname "$0")/.."
export PYTHONPATH="$PWD:${PYTHONPATH:-}" PYTHONUNBUFFERED=1
out="${OUT:-/tmp/gpu_calibration}"
mkdir -p "$out"
kills() { CUDA_VISIBLE_DEVICES= OMP_NUM_THREADS=1 timeout 530 taskset -c "$1" python3 -m benchmarks.kill_study "${@:2}"; }
kills 8-27 --method hot --kills 30 --lanes 10 --results "$out/kills-hot" >"$out/kills-hot.txt" 2>&1 &
kills 28-31 --method cold --kills 2 --lanes 2 --seed 3 --results "$out/kills-cold" >"$out/kills-cold.txt" 2>&1 &
taskset -c 0-7 python3 -m pytest tests -m gpu -q -p no:randomly -p no:cacheprovider >"$out/pytest.txt" 2>&1
tail -8 "$out/pytest.txt"
CUDA_VISIBLE_DEVICES=0 python3 -m benchmarks.calibration_lane --cores 0,1,2,3,4,5,6,7 --seconds 110 --out "$out/hot-aa-h200.json"
CUDA_VISIBLE_DEVICES=1 timeout 100 taskset -c 0-7 python3 -m benchmarks.overhead --only samplers --rounds 2 --window-s 0.4 \
  --toggles swa,analytic-mask >"$out/overhead.txt" 2>&1
CUDA_VISIBLE_DEVICES=1 timeout 60 taskset -c 0-7 python3 -m benchmarks.overhead --only profiler >>"$out/overhead.txt" 2>&1
tail -30 "$out/overhead.txt"
wait
tail -5 "$out/kills-hot.txt" "$out/kills-cold.txt"
cd "$out" && tar czf ../all.tgz . && find . -mindepth 1 -delete && mv ../all.tgz .
