#!/usr/bin/env bash
# Runs everything on this machine's GPU in six minutes at most and writes result.json, and tables to truth/, beside it:
#   run.sh [RESULT.json] [DEVICE]
# In a folder that build.sh made (where the program lies beside this) nothing else is needed but NVIDIA's driver; in the
# repository the folder is built first. DEVICE: cuda:0; emulated:sm_90a rehearses it.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
out="${1:-result.json}" device="${2:-cuda:0}"
if [ ! -x "$here/gpu" ]; then
  "$here/build.sh"
  here="$here/../../${CARGO_TARGET_DIR:-target}/gpu"
fi
# The program keeps to its budget; whatever happens, six minutes are the end.
exec timeout --kill-after=2 360 "$here/gpu" run --device "$device" --out "$out" --budget-s 350
