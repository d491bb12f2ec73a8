#!/usr/bin/env bash
# Builds what goes to a machine with a GPU, into one folder (target/gpu, or the one given): the program without LLVM, its
# kernels compiled, the peers' script, run.sh. 40 MB at most. Needs what `./x setup` installs; with `./x setup --nvidia`
# too, the kernels are there as machine code besides PTX.
set -euo pipefail
cd "$(dirname "$0")/../.."
built="${CARGO_TARGET_DIR:-target}"
to="${1:-$built/gpu}"

cargo build --release --package tegula-gpu --package tegula-codegen --bins
rm -rf "$to"
mkdir -p "$to"
cp "$built/release/gpu" "$to/gpu"
strip "$to/gpu"
if ldd "$to/gpu" | grep -Ei 'llvm|mlir|libcuda'; then
  echo "build.sh: the program needs the libraries above, which the GPU's machine may not have" >&2
  exit 1
fi
TEGULAC="$PWD/$built/release/tegulac" TEGULA_BUNDLE=off "$to/gpu" bundle --out "$to/gpu.bundle"
cp tests/gpu/peers.py tests/gpu/run.sh runtime/ptx/tests/triton/kernels.py "$to"
bytes=$(du -sb "$to" | cut -f1)
echo "$to: $bytes bytes"
if [ "$bytes" -gt 40000000 ]; then
  echo "build.sh: that is more than 40 MB" >&2
  exit 1
fi
