#!/usr/bin/env python3
"""Times PyTorch and Triton on the operations that `gpu` times, at the same sizes: median of launches between two events,
the L2 cache flushed before each. Prints a line of JSON after each operation; the last one has all.

    python3 peers.py [--device 0] [--seconds 100]

What cannot be imported is said in the JSON. Triton's kernels are those of runtime/ptx/tests/triton (kernels.py lies beside
this file where it is shipped).
"""
import argparse
import json
import os
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, '../../runtime/ptx/tests/triton')]
RESULT = {'torch': None, 'triton': None, 'times': {}}


def say():
    print(json.dumps(RESULT), flush=True)


def note(name, who, value):
    RESULT['times'].setdefault(name, {})[who] = value
    say()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--device', type=int, default=0)
    parser.add_argument('--seconds', type=float, default=100)
    args = parser.parse_args()
    end = time.monotonic() + args.seconds
    say()
    try:
        import torch
        import torch.nn.functional as F
    except ImportError as e:
        RESULT['absent'] = f'PyTorch cannot be imported: {e}'
        return say()
    RESULT['torch'] = torch.__version__
    if not torch.cuda.is_available():
        RESULT['absent'] = 'PyTorch sees no GPU'
        return say()
    try:
        import triton
        import triton.language as tl
        import kernels
        RESULT['triton'] = triton.__version__
    except ImportError as e:
        triton = None
        RESULT['triton_absent'] = f'cannot be imported: {e}'
    torch.cuda.set_device(args.device)
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = False  # f32 is f32 here, as there
    flush = torch.empty(64 << 20, dtype=torch.float32, device='cuda')

    def measure(name, who, run):
        """Median microseconds, or what went wrong."""
        if time.monotonic() > end:
            return note(name, who, 'no time was left')
        try:
            for _ in range(3):
                run()
            torch.cuda.synchronize()
            times, stop = [], time.monotonic() + min(1.0, end - time.monotonic())
            while len(times) < 3 or (len(times) < 60 and time.monotonic() < stop):
                flush.zero_()
                a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                a.record()
                run()
                b.record()
                b.synchronize()
                times.append(a.elapsed_time(b) * 1e3)
            note(name, who, round(statistics.median(times), 3))
        except Exception as e:  # one operation that fails must not end the others
            note(name, who, f'{type(e).__name__}: {e}'[:300])

    def new(*shape, dtype=torch.float32):
        return torch.rand(shape, device='cuda', dtype=torch.float32).mul_(2).sub_(1).to(dtype)

    bf16, f16 = torch.bfloat16, torch.float16
    n = 64 << 20
    a, b, c = new(n), new(n), torch.empty(n, device='cuda')
    measure('add f32', 'torch_us', lambda: torch.add(a, b, out=c))
    measure('dropout f32', 'torch_us', lambda: F.dropout(a, 0.3, True))
    del b, c
    text = torch.randint(0, 256, (n,), device='cuda', dtype=torch.uint8)
    measure('histogram u8', 'torch_us', lambda: torch.bincount(text, minlength=256))
    del a, text

    rows, n = 8192, 4096
    x, w = new(rows, n), new(n)
    y = torch.empty(rows, n, device='cuda', dtype=bf16)
    xb = x.to(bf16)
    measure('softmax f32', 'torch_us', lambda: torch.softmax(x, 1))
    measure('softmax bf16', 'torch_us', lambda: torch.softmax(xb, 1))
    measure('layer_norm f32', 'torch_us', lambda: F.layer_norm(x, (n,), w, w, 1e-5))
    if hasattr(F, 'rms_norm'):
        measure('rms_norm f32', 'torch_us', lambda: F.rms_norm(x, (n,), w, 1e-5))
    x2 = new(rows, 2 * n)
    measure('swiglu f32', 'torch_us', lambda: F.silu(x2[:, :n]) * x2[:, n:])
    if triton:
        measure('softmax bf16', 'triton_us', lambda: kernels.softmax_rows[(rows,)](xb, y, n, n, n, BN=4096, num_warps=8))
        wb = w.to(bf16)
        measure('rms_norm bf16', 'triton_us',
                lambda: kernels.rmsnorm_rows[(rows,)](xb, wb, y, n, n, 1e-5, BN=4096, num_warps=8))
    del x, x2, xb, y

    n = 2048
    for dtype, name in ((torch.float32, 'f32'), (f16, 'f16'), (bf16, 'bf16')):
        a, b = new(n, n, dtype=dtype), new(n, n, dtype=dtype)
        c = torch.empty(n, n, device='cuda', dtype=dtype)
        measure(f'matmul {name}', 'torch_us', lambda: torch.matmul(a, b, out=c))
        if triton and dtype != torch.float32:
            out = tl.bfloat16 if dtype == bf16 else tl.float16
            grid = (triton.cdiv(n, 128) * triton.cdiv(n, 128),)
            measure(f'matmul {name}', 'triton_us',
                    lambda: kernels.gemm_ptr[grid](a, b, c, n, n, n, n, n, n, BM=128, BN=128, BK=64, GROUP=8, OUT=out,
                                                   ACC=tl.float32, TB=False, num_warps=8, num_stages=3))
    heads, n, d = 32, 2048, 64
    q, k, v = (new(1, heads, n, d) for _ in range(3))
    measure('attention f32', 'torch_us', lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True))
    qb, kb, vb = (t.to(bf16)[0] for t in (q, k, v))
    measure('attention bf16', 'torch_us', lambda: F.scaled_dot_product_attention(qb[None], kb[None], vb[None], is_causal=True))
    if triton:
        o, lse = torch.empty_like(qb), torch.empty(heads, n, device='cuda')
        scale = 1.4426950408889634 / d ** 0.5
        measure('attention bf16', 'triton_us',
                lambda: kernels.attn_fwd[(triton.cdiv(n, 128), heads)](
                    qb, kb, vb, o, lse, scale, n * d, d, n * d, d, n * d, d, n * d, d, n, n, BM=128, BN=64, D=d,
                    CAUSAL=True, OUT=tl.bfloat16, num_warps=8, num_stages=3))

    k = 4096
    w = new(k, k, dtype=bf16)
    for m, label in ((1, 'linear bf16 1 row'), (512, 'linear bf16 512 rows')):
        x = new(m, k, dtype=bf16)
        measure(label, 'torch_us', lambda: F.linear(x, w))
    table, ids = new(32000, k, dtype=bf16), torch.randint(0, 32000, (2048,), device='cuda')
    measure('embed bf16', 'torch_us', lambda: F.embedding(ids, table))
    del table
    heads, kv, d, context = 32, 8, 128, 4096
    q, keys, values = new(16, heads, 1, d, dtype=bf16), new(16, kv, context, d, dtype=bf16), new(16, kv, context, d, dtype=bf16)
    repeat = lambda t: t.repeat_interleave(heads // kv, 1)
    rk, rv = repeat(keys), repeat(values)
    measure('attention bf16 decode', 'torch_us', lambda: F.scaled_dot_product_attention(q, rk, rv))
    q, keys, values = new(1, heads, 1024, d, dtype=bf16), new(1, heads, 4096, d, dtype=bf16), new(1, heads, 4096, d, dtype=bf16)
    measure('attention bf16 prompt', 'torch_us', lambda: F.scaled_dot_product_attention(q, keys, values))
    logits = new(16, 128256)
    measure('argmax f32', 'torch_us', lambda: torch.argmax(logits, 1))


if __name__ == '__main__':
    main()
