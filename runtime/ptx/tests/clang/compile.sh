#!/bin/sh
# Compiles snippets.cu to PTX with Debian's clang-22; the results are committed, so that tests need no compiler.
set -eu
cd "$(dirname "$0")"
for pair in sm_80:80 sm_90a:80; do
    arch=${pair%:*}
    ${CLANG:-clang-22} -x cuda -std=c++20 --cuda-device-only --cuda-gpu-arch="$arch" -nocudainc -nocudalib \
        --cuda-feature=+ptx"${pair#*:}" -O2 -Wno-unknown-cuda-version -S snippets.cu -o "snippets.$arch.ptx"
done
