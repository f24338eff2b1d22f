# For scripts that use a hold of GPUs, which is short: what is missing must show in its first seconds. Sourced.

refuse() {  # REASON FILE: told on stderr, and where somebody looks who waits for the script's end
  echo "$1" | tee "$2" >&2
  exit 2
}

check_gpus() {  # NUM_GPUS FILE OPTION: py-spy, our dependencies, so many GPUs, or the reason in FILE; OPTION needs fewer
  local why
  command -v py-spy >/dev/null || refuse "py-spy is not on PATH: no launch would have stacks; add the bin folder of its install" "$2"
  why="$("${PYTHON:-python3}" -c "
import flashprof.cli.main, pipeline.cli.main, benchmarks.story, benchmarks.parity, pytest, torch
found = torch.cuda.device_count()
raise SystemExit(None if found >= $1 else f'{found} GPUs are here, $1 are needed; with fewer: $3')" 2>&1)" ||
    refuse "$(tail -n 1 <<<"$why")" "$2"
}
