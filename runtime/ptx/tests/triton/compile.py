#!/usr/bin/env python3
"""Compiles kernels.py to PTX, without a GPU: `compile.py [NAME…]` writes NAME.ptx and launch.json beside itself.

Needs `pip install triton==3.9.0` (no torch). launch.json says for each file: its kernel, architecture, warps, dynamic
shared memory in bytes, the entry's parameters in order and the tile sizes.
"""
import json
import os
import re
import sys
import tempfile

os.environ.setdefault('TRITON_CACHE_DIR', tempfile.mkdtemp())
os.environ['TRITON_DISABLE_LINE_INFO'] = '1'
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import kernels

HERE = os.path.dirname(os.path.abspath(__file__))
BLOCKS = {'BM', 'BN', 'BK', 'GROUP', 'OUT', 'ACC', 'TB', 'D', 'CAUSAL'}
CASES = {}


def case(name, arch, fn, types, consts, aligned, warps=4, stages=3):
    CASES[f'{name}_sm{arch}'] = (fn, arch, types, consts, aligned, dict(num_warps=warps, num_stages=stages))


def gemm(arch, dtype, bm, bn, bk, stages, warps, tb=False):
    acc = tl.int32 if dtype == 'i8' else tl.float32
    out, ctype = {'i8': (tl.int32, '*i32'), 'fp32': (tl.float32, '*fp32')}.get(dtype, (tl.bfloat16, '*bf16'))
    ints = {n: 'i32' for n in ('M', 'N', 'K', 'lda', 'ldb', 'ldc')}
    name = f"gemm_{'nt' if tb else 'ptr'}_{dtype}_{bm}x{bn}x{bk}_s{stages}_w{warps}"
    case(name, arch, kernels.gemm_ptr, {'A': '*' + dtype, 'B': '*' + dtype, 'C': ctype, **ints},
         dict(BM=bm, BN=bn, BK=bk, GROUP=8, OUT=out, ACC=acc, TB=tb), ['A', 'B', 'C', *ints], warps, stages)


def gemm_tma(arch, dtype, bm, bn, bk, stages, warps):
    desc = lambda t, r, c: f'tensordesc<{t}[{r}, {c}]>'
    case(f'gemm_tma_{dtype}_{bm}x{bn}x{bk}_s{stages}_w{warps}', arch, kernels.gemm_tma,
         dict(A=desc(dtype, bm, bk), B=desc(dtype, bn, bk), C=desc('bf16', bm, bn), M='i32', N='i32', K='i32'),
         dict(BM=bm, BN=bn, BK=bk, GROUP=8, OUT=tl.bfloat16), ['M', 'N', 'K'], warps, stages)


def attn(arch, bm, bn, d, causal, stages, warps):
    strides = ('sqb', 'sqm', 'skb', 'skn', 'svb', 'svn', 'sob', 'som')
    types = {**{n: '*bf16' for n in 'QKVO'}, 'LSE': '*fp32', 'scale': 'fp32', **{n: 'i32' for n in (*strides, 'NQ', 'NK')}}
    case(f"attn_ptr_{bm}x{bn}_d{d}{'_causal' if causal else ''}_s{stages}_w{warps}", arch, kernels.attn_fwd, types,
         dict(BM=bm, BN=bn, D=d, CAUSAL=causal, OUT=tl.bfloat16), [n for n in types if n != 'scale'], warps, stages)


def attn_tma(arch, bm, bn, d, causal, stages, warps, fn=kernels.attn_fwd_tma, name='attn_tma'):
    q, kv = f'tensordesc<bf16[{bm}, {d}]>', f'tensordesc<bf16[{bn}, {d}]>'
    case(f"{name}_{bm}x{bn}_d{d}{'_causal' if causal else ''}_s{stages}_w{warps}", arch, fn,
         dict(Q=q, K=kv, V=kv, O=q, LSE='*fp32', scale='fp32', NQ='i32', NK='i32'),
         dict(BM=bm, BN=bn, D=d, CAUSAL=causal, OUT=tl.bfloat16), ['LSE', 'NQ', 'NK'], warps, stages)


for arch in (80, 90):
    for warps in (4, 8):
        gemm(arch, 'bf16', 128, 128, 64, 3, warps)
    gemm(arch, 'bf16', 128, 128, 32, 4, 4)
    gemm(arch, 'bf16', 128, 256, 64, 3, 8)
    gemm(arch, 'fp16', 64, 64, 32, 2, 4)
    gemm(arch, 'fp32', 128, 128, 32, 3, 4)
    gemm(arch, 'i8', 128, 128, 128, 3, 4)
    gemm(arch, 'i8', 128, 128, 128, 3, 4, tb=True)
    gemm(arch, 'bf16', 128, 128, 64, 3, 4, tb=True)
    for warps in (4, 8):
        attn(arch, 128, 64, 64, True, 3, warps)
    attn(arch, 128, 64, 128, False, 3, 8)
    attn(arch, 128, 64, 128, True, 2, 8)
    case('softmax_4096_w8', arch, kernels.softmax_rows, dict(X='*bf16', Y='*bf16', ldx='i32', ldy='i32', N='i32'),
         dict(BN=4096), ['X', 'Y', 'ldx', 'ldy', 'N'], 8)
    case('rmsnorm_4096_w8', arch, kernels.rmsnorm_rows, dict(X='*bf16', W='*bf16', Y='*bf16', ld='i32', N='i32', eps='fp32'),
         dict(BN=4096), ['X', 'W', 'Y', 'ld', 'N'], 8)
for warps in (4, 8):
    gemm_tma(90, 'bf16', 128, 128, 64, 3, warps)
gemm_tma(90, 'bf16', 128, 256, 64, 3, 8)
gemm_tma(90, 'bf16', 128, 256, 64, 4, 8)
gemm_tma(90, 'fp8e4nv', 128, 256, 128, 3, 8)
attn_tma(90, 128, 64, 64, True, 3, 4)
attn_tma(90, 128, 128, 128, False, 2, 8)
attn_tma(90, 128, 128, 64, False, 3, 8)
attn_tma(90, 128, 64, 64, True, 3, 4, kernels.attn_fwd_tma2, 'attn_tma2')
attn_tma(90, 128, 128, 128, True, 2, 8, kernels.attn_fwd_tma2, 'attn_tma2')
gemm(89, 'fp8e4nv', 128, 128, 128, 3, 4)
for arch in (89, 90):
    gemm(arch, 'fp8e4nv', 128, 128, 128, 3, 4, tb=True)


def compile(name):
    fn, arch, types, consts, aligned, options = CASES[name]
    signature = {n: types.get(n, 'constexpr') for n in fn.arg_names}
    attrs = {(fn.arg_names.index(n),): [['tt.divisibility', 16]] for n in aligned}
    k = triton.compile(ASTSource(fn, signature, consts, attrs), target=GPUTarget('cuda', arch, 32), options=options)
    with open(f'{HERE}/{name}.ptx', 'w') as f:
        f.write('\n'.join(line.rstrip() for line in k.asm['ptx'].splitlines()) + '\n')
    plain = {n: v if isinstance(v, (int, bool)) else str(v) for n, v in consts.items()}
    return dict(kernel=fn.__name__, arch=arch, warps=k.metadata.num_warps, shared=k.metadata.shared,
                global_scratch=k.metadata.global_scratch_size, params=[[n, types[n]] for n in fn.arg_names if n in types],
                consts=plain, descriptors=getattr(k.metadata, 'tensordesc_meta', None))


if __name__ == '__main__':
    wanted = sys.argv[1:] or list(CASES)
    path = f'{HERE}/launch.json'
    table = json.load(open(path)) if os.path.exists(path) else {}
    for name in wanted:
        table[name] = compile(name)
        print(name, table[name]['shared'], flush=True)
    with open(path, 'w') as f:
        json.dump(dict(sorted(table.items())), f, indent=1, default=str)
        f.write('\n')
