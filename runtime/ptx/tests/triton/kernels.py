"""Triton kernels whose PTX the emulator must run: products, attention and row kernels, with pointers and with tensor maps."""
import triton
import triton.language as tl


@triton.jit
def tile_of(pid, M, N, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    """Programs in groups of GROUP rows of tiles, so that neighbours share operands in L2."""
    rows, cols = tl.cdiv(M, BM), tl.cdiv(N, BN)
    first = pid // (GROUP * cols) * GROUP
    size = min(rows - first, GROUP)
    return first + pid % size, pid % (GROUP * cols) // size


@triton.jit
def gemm_ptr(A, B, C, M, N, K, lda, ldb, ldc, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
             GROUP: tl.constexpr, OUT: tl.constexpr, ACC: tl.constexpr, TB: tl.constexpr):
    """C = A·B, row-major; with TB, B is [N, K]."""
    pm, pn = tile_of(tl.program_id(0), M, N, BM, BN, GROUP)
    m, n, k = pm * BM + tl.arange(0, BM), pn * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=ACC)
    for start in range(0, K, BK):
        kk = start + k
        a = tl.load(A + m[:, None] * lda + kk[None, :], mask=(m[:, None] < M) & (kk[None, :] < K), other=0.0)
        if TB:
            b = tl.load(B + n[None, :] * ldb + kk[:, None], mask=(n[None, :] < N) & (kk[:, None] < K), other=0.0)
        else:
            b = tl.load(B + kk[:, None] * ldb + n[None, :], mask=(n[None, :] < N) & (kk[:, None] < K), other=0.0)
        acc = tl.dot(a, b, acc)
    tl.store(C + m[:, None] * ldc + n[None, :], acc.to(OUT), mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def gemm_tma(A, B, C, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
             OUT: tl.constexpr):
    """C = A·Bᵀ through tensor maps: A [M, K], B [N, K]."""
    pm, pn = tile_of(tl.program_id(0), M, N, BM, BN, GROUP)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(A.load([pm * BM, k]), B.load([pn * BN, k]).T, acc)
    C.store([pm * BM, pn * BN], acc.to(OUT))


@triton.jit
def fold(acc, m, l, s, v):
    """One step of online softmax in base 2."""
    top = tl.maximum(m, tl.max(s, 1))
    p = tl.exp2(s - top[:, None])
    scale = tl.exp2(m - top)
    acc = tl.dot(p.to(v.dtype), v, acc * scale[:, None])
    return acc, top, l * scale + tl.sum(p, 1)


@triton.jit
def attn_fwd(Q, K, V, O, LSE, scale, sqb, sqm, skb, skn, svb, svn, sob, som, NQ, NK, BM: tl.constexpr,
             BN: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr, OUT: tl.constexpr):
    """Attention of one head a batch entry; LSE (natural) beside it. scale is 1/sqrt(d)·log2(e)."""
    pm, pb = tl.program_id(0), tl.program_id(1)
    rows, cols, d = pm * BM + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, D)
    q = tl.load(Q + pb * sqb + rows[:, None] * sqm + d[None, :], mask=rows[:, None] < NQ, other=0)
    m = tl.full((BM,), float('-inf'), tl.float32)
    l = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    end = min(NK, (pm + 1) * BM) if CAUSAL else NK
    for start in range(0, end, BN):
        n = start + cols
        k = tl.load(K + pb * skb + n[None, :] * skn + d[:, None], mask=n[None, :] < NK, other=0)
        s = tl.dot(q, k) * scale
        keep = n[None, :] < NK
        if CAUSAL:
            keep = keep & (rows[:, None] >= n[None, :])
        s = tl.where(keep, s, float('-inf'))
        v = tl.load(V + pb * svb + n[:, None] * svn + d[None, :], mask=n[:, None] < NK, other=0)
        acc, m, l = fold(acc, m, l, s, v)
    tl.store(O + pb * sob + rows[:, None] * som + d[None, :], (acc / l[:, None]).to(OUT), mask=rows[:, None] < NQ)
    tl.store(LSE + pb * NQ + rows, (m + tl.log2(l)) * 0.6931471805599453, mask=rows < NQ)


@triton.jit
def attn_fwd_tma(Q, K, V, O, LSE, scale, NQ, NK, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr,
                 CAUSAL: tl.constexpr, OUT: tl.constexpr):
    """The same through tensor maps over [batch·rows, D]; NQ and NK are multiples of the tiles."""
    pm, pb = tl.program_id(0), tl.program_id(1)
    rows, cols = pm * BM + tl.arange(0, BM), tl.arange(0, BN)
    q = Q.load([pb * NQ + pm * BM, 0])
    m = tl.full((BM,), float('-inf'), tl.float32)
    l = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    end = min(NK, (pm + 1) * BM) if CAUSAL else NK
    for start in range(0, end, BN):
        s = tl.dot(q, K.load([pb * NK + start, 0]).T) * scale
        if CAUSAL:
            s = tl.where(rows[:, None] >= (start + cols)[None, :], s, float('-inf'))
        acc, m, l = fold(acc, m, l, s, V.load([pb * NK + start, 0]))
    O.store([pb * NQ + pm * BM, 0], (acc / l[:, None]).to(OUT))
    tl.store(LSE + pb * NQ + rows, (m + tl.log2(l)) * 0.6931471805599453)


@triton.jit
def attn_fwd_tma2(Q, K, V, O, LSE, scale, NQ, NK, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr,
                  CAUSAL: tl.constexpr, OUT: tl.constexpr):
    """The same in two loops: below the diagonal without a mask, then across it with one."""
    pm, pb = tl.program_id(0), tl.program_id(1)
    rows, cols = pm * BM + tl.arange(0, BM), tl.arange(0, BN)
    q = Q.load([pb * NQ + pm * BM, 0])
    m = tl.full((BM,), float('-inf'), tl.float32)
    l = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for start in range(0, pm * BM // BN * BN, BN):
        s = tl.dot(q, K.load([pb * NK + start, 0]).T) * scale
        acc, m, l = fold(acc, m, l, s, V.load([pb * NK + start, 0]))
    for start in range(pm * BM // BN * BN, min(NK, (pm + 1) * BM), BN):
        s = tl.dot(q, K.load([pb * NK + start, 0]).T) * scale
        s = tl.where(rows[:, None] >= (start + cols)[None, :], s, float('-inf'))
        acc, m, l = fold(acc, m, l, s, V.load([pb * NK + start, 0]))
    O.store([pb * NQ + pm * BM, 0], (acc / l[:, None]).to(OUT))
    tl.store(LSE + pb * NQ + rows, (m + tl.log2(l)) * 0.6931471805599453)


@triton.jit
def softmax_rows(X, Y, ldx, ldy, N, BN: tl.constexpr):
    """Softmax of each row."""
    row, n = tl.program_id(0), tl.arange(0, BN)
    x = tl.load(X + row * ldx + n, mask=n < N, other=float('-inf')).to(tl.float32)
    e = tl.exp(x - tl.max(x, 0))
    tl.store(Y + row * ldy + n, (e / tl.sum(e, 0)).to(tl.bfloat16), mask=n < N)


@triton.jit
def rmsnorm_rows(X, W, Y, ld, N, eps, BN: tl.constexpr):
    """x / sqrt(mean(x²) + eps) · w of each row."""
    row, n = tl.program_id(0), tl.arange(0, BN)
    x = tl.load(X + row * ld + n, mask=n < N, other=0).to(tl.float32)
    w = tl.load(W + n, mask=n < N, other=0).to(tl.float32)
    y = x * tl.rsqrt(tl.sum(x * x, 0) / N + eps) * w
    tl.store(Y + row * ld + n, y.to(tl.bfloat16), mask=n < N)
