// What a CUDA header would declare, as far as these snippets need it: everything by clang's own builtins.
#pragma once

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define KERNEL extern "C" __global__ void
#define NOINLINE __device__ __attribute__((noinline))

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

__device__ inline u32 thread() { return __nvvm_read_ptx_sreg_tid_x(); }
__device__ inline u32 threads() { return __nvvm_read_ptx_sreg_ntid_x(); }
__device__ inline u32 block() { return __nvvm_read_ptx_sreg_ctaid_x(); }
__device__ inline u32 lane() { return __nvvm_read_ptx_sreg_laneid(); }
__device__ inline u32 global_thread() { return block() * threads() + thread(); }
__device__ inline void barrier() { __syncthreads(); }
