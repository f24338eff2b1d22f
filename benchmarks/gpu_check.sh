#!/usr/bin/env bash
# Everything that a GPU must show for this commit, in one call; writes to $OUT. Needs torch with CUDA and our dependencies.
set -uo pipefail
cd "$(dirname "$0")/.."
export PYTHONPATH="$PWD:${PYTHONPATH:-}" PYTHONUNBUFFERED=1
out="${OUT:-/tmp/gpu_check}"
mkdir -p "$out"
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
python3 -c 'import torch, transformers; print("torch", torch.__version__, "transformers", transformers.__version__)'
python3 -m pytest tests -m gpu -q -p no:randomly -p no:cacheprovider 2>&1 | tee "$out/pytest.log" | tail -30
for toggles in none compile,swa all; do
  echo "== $toggles"
  python3 -m flashprof.cli run --toggles "$toggles" --reports "$out/reports" --run-id "${toggles//,/_}" \
    --set windows.num_measure=4 --set windows.measure_s=4 --set windows.num_profile=2 --set windows.profile_s=3 \
    2>"$out/${toggles//,/_}.err" | tee "$out/${toggles//,/_}.txt"
  tail -3 "$out/${toggles//,/_}.err"
done
tar czf "$out/reports.tgz" -C "$out" reports && rm -rf "$out/reports"
