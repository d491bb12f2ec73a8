// Kernels of which each exercises what a C++ compiler makes of one idea. The tests compute what they must give.
#include "device.h"

// ---- reductions ---------------------------------------------------------------------------------------------------

__device__ inline float warp_sum(float x) {
    for (int step = 16; step > 0; step /= 2) x += __nvvm_shfl_sync_bfly_f32(~0u, x, step, 31);
    return x;
}

// Sum of each block's slice, through shuffles and shared memory.
KERNEL block_sums(const float *x, float *sums, u32 n) {
    __shared__ float parts[32];
    float sum = 0;
    for (u32 i = global_thread(); i < n; i += threads() * __nvvm_read_ptx_sreg_nctaid_x()) sum += x[i];
    sum = warp_sum(sum);
    if (lane() == 0) parts[thread() / 32] = sum;
    barrier();
    if (thread() < 32) {
        sum = warp_sum(thread() < threads() / 32 ? parts[thread()] : 0.0f);
        if (thread() == 0) sums[block()] = sum;
    }
}

// Inclusive sums over a warp, by shuffles upwards.
KERNEL warp_scan(const u32 *x, u32 *out) {
    u32 v = x[global_thread()];
    for (u32 step = 1; step < 32; step *= 2) {
        u32 other = __nvvm_shfl_sync_up_i32(~0u, v, step, 0);
        if (lane() >= step) v += other;
    }
    out[global_thread()] = v;
}

// The largest value and the lowest thread that holds it, over 256 threads in shared memory.
KERNEL argmax(const int *x, int *out) {
    __shared__ int values[256], places[256];
    u32 t = thread();
    values[t] = x[block() * 256 + t];
    places[t] = t;
    for (u32 half = 128; half > 0; half /= 2) {
        barrier();
        if (t < half) {
            int a = values[t], b = values[t + half];
            if (b > a || (b == a && places[t + half] < places[t])) {
                values[t] = b;
                places[t] = places[t + half];
            }
        }
    }
    if (t == 0) {
        out[2 * block()] = values[0];
        out[2 * block() + 1] = places[0];
    }
}

// ---- shared memory ------------------------------------------------------------------------------------------------

// Transposes tiles of 32 x 32 with a padded row.
KERNEL transpose(const float *x, float *y, u32 rows, u32 columns) {
    __shared__ float tile[32][33];
    u32 bx = block() % ((columns + 31) / 32) * 32, by = block() / ((columns + 31) / 32) * 32;
    u32 tx = thread() % 32, ty = thread() / 32;
    for (u32 r = ty; r < 32; r += threads() / 32)
        if (by + r < rows && bx + tx < columns) tile[r][tx] = x[(by + r) * columns + bx + tx];
    barrier();
    for (u32 r = ty; r < 32; r += threads() / 32)
        if (bx + r < columns && by + tx < rows) y[(bx + r) * rows + by + tx] = tile[tx][r];
}

// A matrix product by tiles of 16 x 16.
KERNEL matmul(const float *a, const float *b, float *c, u32 n) {
    __shared__ float as[16][16], bs[16][16];
    u32 tx = thread() % 16, ty = thread() / 16, per = n / 16;
    u32 row = block() / per * 16 + ty, column = block() % per * 16 + tx;
    float sum = 0;
    for (u32 k = 0; k < n; k += 16) {
        as[ty][tx] = a[row * n + k + tx];
        bs[ty][tx] = b[(k + ty) * n + column];
        barrier();
#pragma unroll
        for (u32 i = 0; i < 16; i++) sum = __builtin_fmaf(as[ty][i], bs[i][tx], sum);
        barrier();
    }
    c[row * n + column] = sum;
}

// Dynamic shared memory, sorted by the odd-even method.
extern __shared__ int dynamic[];
KERNEL sort_block(int *x) {
    u32 t = thread(), n = threads();
    dynamic[t] = x[block() * n + t];
    barrier();
    for (u32 step = 0; step < n; step++) {
        u32 i = 2 * t + (step & 1);
        if (i + 1 < n && dynamic[i] > dynamic[i + 1]) {
            int swap = dynamic[i];
            dynamic[i] = dynamic[i + 1];
            dynamic[i + 1] = swap;
        }
        barrier();
    }
    x[block() * n + t] = dynamic[t];
}

// ---- atomics ------------------------------------------------------------------------------------------------------

// Bytes counted in shared memory, then added to global memory.
KERNEL histogram(const u8 *x, u32 *counts, u32 n) {
    __shared__ u32 mine[256];
    for (u32 i = thread(); i < 256; i += threads()) mine[i] = 0;
    barrier();
    for (u32 i = global_thread(); i < n; i += threads() * __nvvm_read_ptx_sreg_nctaid_x())
        __atomic_fetch_add(&mine[x[i]], 1, __ATOMIC_RELAXED);
    barrier();
    for (u32 i = thread(); i < 256; i += threads())
        if (mine[i]) __atomic_fetch_add(&counts[i], mine[i], __ATOMIC_RELAXED);
}

// Maximum of floats by compare-and-swap; a sum of doubles; 64-bit minimum; exchanges.
KERNEL atomics(const float *x, u32 *most, double *sum, i64 *least, u32 *last) {
    u32 i = global_thread();
    float v = x[i];
    u32 old = __atomic_load_n(most, __ATOMIC_RELAXED);
    while (v > __builtin_bit_cast(float, old)
           && !__atomic_compare_exchange_n(most, &old, __builtin_bit_cast(u32, v), false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {}
    __nvvm_atom_add_gen_d(sum, (double)v);
    __nvvm_atom_min_gen_ll(least, (i64)(v * 1e12f));
    __atomic_exchange_n(last + i % 4, i, __ATOMIC_RELAXED);
}

// ---- local memory and indices -------------------------------------------------------------------------------------

// A small array whose index is known only at run time.
KERNEL local_array(const u32 *x, u32 *out) {
    u32 table[17];
    u32 seed = x[global_thread()];
    for (u32 i = 0; i < 17; i++) table[i] = seed * (i + 1) ^ i;
    for (u32 i = 0; i < 40; i++) {
        u32 a = seed % 17, b = (seed >> 8) % 17;
        table[a] += table[b];
        seed = seed * 1664525 + 1013904223;
    }
    u32 sum = 0;
    for (u32 i = 0; i < 17; i++) sum = sum * 31 + table[i];
    out[global_thread()] = sum;
}

// Insertion sort of eight values in local memory, through a function that takes pointers.
NOINLINE void insert(int *values, int n, int v) {
    int i = n;
    while (i > 0 && values[i - 1] > v) {
        values[i] = values[i - 1];
        i--;
    }
    values[i] = v;
}
KERNEL sort_eight(int *x) {
    int values[8];
    for (int i = 0; i < 8; i++) insert(values, i, x[global_thread() * 8 + i]);
    for (int i = 0; i < 8; i++) x[global_thread() * 8 + i] = values[i];
}

// A struct of mixed sizes as a kernel parameter and through a function by value.
struct Mixed {
    u8 small;
    short middle;
    double wide;
    int list[5];
};
NOINLINE double weigh(Mixed m, u32 i) { return m.small + m.middle * m.wide + m.list[i % 5]; }
KERNEL by_value(Mixed m, double *out) {
    m.list[2] += thread();
    out[thread()] = weigh(m, thread());
}

__constant__ float weights[9] = {1, 2, 1, 2, 4, 2, 1, 2, 1};
__constant__ const char *const words[3] = {"zero", "one", "twelve"};
// A 3 x 3 filter with weights in constant memory.
KERNEL blur(const float *x, float *y, int width, int height) {
    int i = global_thread(), cx = i % width, cy = i / width;
    if (cy >= height) return;
    float sum = 0, weight = 0;
    for (int dy = -1; dy <= 1; dy++)
        for (int dx = -1; dx <= 1; dx++)
            if (cx + dx >= 0 && cx + dx < width && cy + dy >= 0 && cy + dy < height) {
                float w = weights[(dy + 1) * 3 + dx + 1];
                sum += w * x[(cy + dy) * width + cx + dx];
                weight += w;
            }
    y[i] = sum / weight;
}

// Lengths of strings found through a table of pointers.
KERNEL lengths(u32 *out) {
    const char *s = words[thread() % 3];
    u32 n = 0;
    while (s[n]) n++;
    out[thread()] = n;
}

// ---- calls --------------------------------------------------------------------------------------------------------

typedef u32 (*Binary)(u32, u32);
NOINLINE u32 plus(u32 a, u32 b) { return a + b; }
NOINLINE u32 times(u32 a, u32 b) { return a * b; }
NOINLINE u32 power(u32 a, u32 b) {
    u32 p = 1;
    for (u32 i = 0; i < b % 9; i++) p = times(p, a);
    return p;
}
NOINLINE u32 gcd(u32 a, u32 b) {
    while (b) {
        u32 r = a % b;
        a = b;
        b = r;
    }
    return a;
}
__device__ Binary operations[4] = {plus, times, power, gcd};
KERNEL indirect(const u32 *which, const u32 *a, const u32 *b, u32 *out) {
    u32 i = global_thread();
    out[i] = operations[which[i] % 4](a[i], b[i]);
}

// A virtual function by hand: the object holds its function.
struct Shape {
    float (*area)(const Shape *);
    float a, b;
};
NOINLINE float rectangle(const Shape *s) { return s->a * s->b; }
NOINLINE float triangle(const Shape *s) { return 0.5f * s->a * s->b; }
KERNEL shapes(const float *a, const float *b, float *out) {
    u32 i = global_thread();
    Shape s;
    s.area = i % 3 ? rectangle : triangle;
    s.a = a[i];
    s.b = b[i];
    out[i] = s.area(&s);
}

// ---- control flow -------------------------------------------------------------------------------------------------

// Eleven dense cases, which become an indexed branch.
KERNEL switches(const u32 *x, u32 *out) {
    u32 v = x[global_thread()], r;
    switch (v % 12) {
        case 0: r = v + 1; break;
        case 1: r = v * 3; break;
        case 2: r = v ^ 0x55; break;
        case 3: r = v >> 3; break;
        case 4: r = ~v; break;
        case 5: r = v << 5; [[fallthrough]];
        case 6: r = v - 17; break;
        case 7: r = v / 7; break;
        case 8: r = v % 13; break;
        case 9: r = v & 0xf0f0; break;
        case 10: r = v | 0x0f0f; break;
        default: r = 0xdead; break;
    }
    out[global_thread()] = r;
}

// Steps of 3 n + 1: every lane loops its own number of times, with an early way out.
KERNEL collatz(const u32 *x, u32 *steps) {
    u64 n = x[global_thread()];
    u32 count = 0;
    while (n > 1) {
        n = n & 1 ? 3 * n + 1 : n / 2;
        if (++count == 200) break;
    }
    steps[global_thread()] = count;
}

// Nested loops with continue and break, and a barrier that all lanes reach by different ways.
KERNEL nested(const u32 *x, u32 *out) {
    __shared__ u32 best[64];
    u32 v = x[global_thread()], sum = 0;
    for (u32 i = 0; i < v % 7 + 1; i++) {
        if (i % 3 == 2) continue;
        for (u32 j = 0; j < 5; j++) {
            if (j > v % 4) break;
            sum += i * 10 + j;
        }
    }
    best[thread()] = sum;
    barrier();
    out[global_thread()] = best[(thread() + v) % 64];
}

// ---- warps --------------------------------------------------------------------------------------------------------

// Positions of values that pass, compacted by votes.
KERNEL compact(const int *x, int *out, u32 *count) {
    int v = x[global_thread()];
    u32 pass = __nvvm_vote_ballot_sync(~0u, v > 0);
    u32 before = __builtin_popcount(pass & ((1u << lane()) - 1));
    u32 base = 0;
    if (lane() == 0) base = __atomic_fetch_add(count, __builtin_popcount(pass), __ATOMIC_RELAXED);
    base = __nvvm_shfl_sync_idx_i32(~0u, base, 0, 31);
    if (v > 0) out[base + before] = v;
}

// Votes, matches and sub-warps of eight lanes.
KERNEL votes(const u32 *x, u32 *out) {
    u32 v = x[global_thread()];
    u32 r = __nvvm_vote_all_sync(~0u, v < 1000) | __nvvm_vote_any_sync(~0u, v == 5) << 1 | __nvvm_vote_uni_sync(~0u, v > 3) << 2;
    r |= __builtin_popcount(__nvvm_match_any_sync_i32(~0u, v)) << 8;
    u32 eight = v;
    for (int step = 4; step > 0; step /= 2) eight += __nvvm_shfl_sync_bfly_i32(~0u, eight, step, 0x181f);
    out[2 * global_thread()] = r;
    out[2 * global_thread() + 1] = eight + __nvvm_redux_sync_umax(v, ~0u);
}

// Half of a warp works together while the other half does something else.
KERNEL half_warps(u32 *out) {
    u32 r;
    if (lane() < 16) {
        r = lane();
        for (int step = 8; step > 0; step /= 2) r += __nvvm_shfl_sync_bfly_i32(0xffff, r, step, 31);
        __nvvm_bar_warp_sync(0xffff);
    } else {
        r = __nvvm_vote_ballot_sync(0xffff0000, lane() % 3 == 0);
    }
    __nvvm_bar_warp_sync(~0u);
    out[thread()] = r;
}

// ---- arithmetic ---------------------------------------------------------------------------------------------------

// Signed and unsigned 64-bit arithmetic, wide products and shifts.
KERNEL wide(const u64 *a, const u64 *b, u64 *out) {
    u32 i = global_thread();
    u64 x = a[i], y = b[i] | 1, r = x / y + x % y;
    r ^= (u64)((i64)x / (i64)y) * 3;
    r += (u64)((i64)x % (i64)y);
    r ^= (u64)(((unsigned __int128)x * y) >> 64);
    r += x << (y & 63) | x >> (63 - (y & 63));
    r ^= (u64)((i64)x >> (y & 31));
    r += __builtin_popcountll(x) + __builtin_clzll(y) * 64ull + __builtin_bitreverse64(x);
    out[i] = r;
}

// Doubles: a cubic and a square root, with comparisons.
KERNEL doubles(const double *x, double *out) {
    u32 i = global_thread();
    double v = x[i], r = ((2.0 * v - 3.0) * v + 0.5) * v - 7.0;
    out[i] = r > 0 ? __nvvm_sqrt_rn_d(r) : (r < -10 ? -r / 3.0 : __builtin_fabs(r));
}

// Halves: __fp16 arithmetic and conversions.
KERNEL halves(const _Float16 *a, const _Float16 *b, _Float16 *out, float *sums) {
    u32 i = global_thread();
    _Float16 x = a[i], y = b[i];
    out[i] = x * y + x - y;
    sums[i] = (float)x + (float)y * (float)(int)x;
}

// bf16: products and sums, by the compiler's own type.
KERNEL brains(const __bf16 *a, const __bf16 *b, __bf16 *out) {
    u32 i = global_thread();
    float x = a[i], y = b[i];
    out[i] = (__bf16)(x * y + 1.0f);
}

// Byte-wise arithmetic that becomes prmt and bit fields.
KERNEL bytes(const u32 *x, u32 *out) {
    u32 v = x[global_thread()];
    u32 swapped = __builtin_bswap32(v);
    u32 rotated = __builtin_rotateleft32(v, v & 31);
    u32 fields = (v >> 5 & 0x7f) << 20 | (v >> 17 & 0x3ff);
    signed char low = v;
    short high = v >> 16;
    out[global_thread()] = swapped ^ rotated ^ fields ^ (u32)(low * high);
}

// ---- inline assembly ----------------------------------------------------------------------------------------------

// Carries by hand, a byte permutation, and a three-input logic function.
KERNEL assembly(const u32 *a, const u32 *b, u32 *out) {
    u32 i = global_thread(), low, high, mixed, logic;
    asm("{ add.cc.u32 %0, %2, %3; addc.u32 %1, 0, 0; }" : "=r"(low), "=r"(high) : "r"(a[i]), "r"(b[i]));
    asm("prmt.b32 %0, %1, %2, 0x6240;" : "=r"(mixed) : "r"(a[i]), "r"(b[i]));
    asm volatile("{ .reg .pred p; setp.lt.u32 p, %1, %2; selp.u32 %0, 1, 2, p; lop3.b32 %0, %0, %1, %2, 0x96; }"
                 : "=r"(logic) : "r"(a[i]), "r"(b[i]));
    out[4 * i] = low;
    out[4 * i + 1] = high;
    out[4 * i + 2] = mixed;
    out[4 * i + 3] = logic;
}

// Copies of 16 bytes in the background, two stages deep.
KERNEL copies(const float *x, float *sums, u32 chunks) {
    __shared__ alignas(16) float stage[2][256];
    u32 t = thread();
    auto fetch = [&](u32 chunk) {
        if (chunk < chunks) {
            u32 to = (u32)(u64)(__attribute__((address_space(3))) float *)&stage[chunk & 1][4 * t];
            asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(to), "l"(x + 256 * chunk + 4 * t) : "memory");
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    float sum = 0;
    fetch(0);
    for (u32 chunk = 0; chunk < chunks; chunk++) {
        fetch(chunk + 1);
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        barrier();
        for (u32 i = 0; i < 4; i++) sum += stage[chunk & 1][(t * 7 + i * 64) % 256];
        barrier();
    }
    sums[t] = sum;
}

// A product of 16 x 8 by the tensor cores, fragments by hand.
KERNEL tensor_core(const u32 *a, const u32 *b, float *d) {
    float r[4] = {};
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(r[0]), "+f"(r[1]), "+f"(r[2]), "+f"(r[3])
                 : "r"(a[thread() * 4]), "r"(a[thread() * 4 + 1]), "r"(a[thread() * 4 + 2]), "r"(a[thread() * 4 + 3]),
                   "r"(b[thread() * 2]), "r"(b[thread() * 2 + 1]));
    for (u32 i = 0; i < 4; i++) d[thread() * 4 + i] = r[i];
}

// ---- printing -----------------------------------------------------------------------------------------------------

extern "C" __device__ int vprintf(const char *, void *);
KERNEL prints(const int *x) {
    struct {
        u32 thread;
        int value;
        double half;
        const char *word;
    } values = {thread(), x[thread()], x[thread()] * 0.5, words[thread() % 3]};
    vprintf("thread %u: %d, half %.2f, %s\n", &values);
}

#if __CUDA_ARCH__ >= 900
// Threads wait for each other at an mbarrier, and blocks of a cluster exchange through distributed shared memory.
KERNEL mbarriers(u32 *out) {
    __shared__ alignas(8) u64 bar;
    __shared__ u32 values[64];
    u32 at = (u32)(u64)(__attribute__((address_space(3))) u64 *)&bar;
    if (thread() == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(threads()) : "memory");
    barrier();
    for (u32 round = 0; round < 3; round++) {
        values[thread()] = thread() * (round + 2);
        u64 token;
        asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(token) : "r"(at) : "memory");
        u32 done;
        do {
            asm volatile("{ .reg .pred p; mbarrier.try_wait.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                         : "=r"(done) : "r"(at), "l"(token) : "memory");
        } while (!done);
        out[round * 64 + thread()] = values[63 - thread()];
        barrier();
    }
}

KERNEL cluster_exchange(u32 *out) {
    __shared__ u32 mine[32];
    mine[thread()] = block() * 100 + thread();
    __nvvm_barrier_cluster_arrive();
    __nvvm_barrier_cluster_wait();
    u32 rank = __nvvm_read_ptx_sreg_cluster_ctarank(), other;
    u32 at = (u32)(u64)(__attribute__((address_space(3))) u32 *)&mine[31 - thread()];
    asm volatile("{ .reg .b32 a; mapa.shared::cluster.u32 a, %1, %2; ld.shared::cluster.u32 %0, [a]; }"
                 : "=r"(other) : "r"(at), "r"(rank ^ 1) : "memory");
    out[global_thread()] = other;
    __nvvm_barrier_cluster_arrive();
    __nvvm_barrier_cluster_wait();
}
#endif
