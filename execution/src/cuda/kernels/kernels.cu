// SPDX-License-Identifier: Apache-2.0
//
// The device kernels, under the names by which the driver finds them (arguments.h).
#include "cuda/kernels/arguments.h"
#include "cuda/kernels/element.h"
#include "cuda/kernels/reduce.h"

#include <cstdint>

namespace xylem::execution::cuda {
namespace {

/// This many blocks of kMostThreads threads shall fit on a multiprocessor at once: the more threads
/// there are, the more bytes are in flight from and to memory, which determines the speed. Ampere
/// and Hopper hold at most eight such blocks, which leaves each thread 32 registers. Kernels for
/// elements of 8 bits, 16 in a vector, need more registers, so fewer of their blocks fit.
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 900)
constexpr unsigned kMostBlocks = 8;
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
constexpr unsigned kMostBlocks = 6;
#else
constexpr unsigned kMostBlocks = 4;
#endif
template <class Element>
constexpr unsigned kBlocks = sizeof(typename Element::Stored) == 1 ? 4 : kMostBlocks;

__device__ Place place_of_thread() {
  return {blockIdx.x * static_cast<std::uint64_t>(blockDim.x) + threadIdx.x,
          gridDim.x * static_cast<std::uint64_t>(blockDim.x)};
}

/// True in all threads of the block that ends last. These threads then observe everything that the
/// threads of the launch have written before.
__device__ bool is_last_block(std::uint32_t* ended) {
  __shared__ bool is_last;
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x == 0) is_last = atomicInc(ended, gridDim.x - 1) == gridDim.x - 1;
  __syncthreads();
  return is_last;
}

template <class Element, class Op>
__device__ void run_reduce(const ReduceArguments& arguments) {
  reduce_n<Element, Op>(arguments, place_of_thread());
}

template <class Element>
__device__ void run_scale(const ScaleArguments& arguments) {
  scale<Element>(arguments, place_of_thread());
}

template <class Element, class Op>
__device__ void run_exchange(const ExchangeArguments& a) {
  __shared__ void* pointers[kMostOperands];
  __shared__ bool staged[kMostParts];
  __shared__ bool runs, is_right;
  const std::uint32_t k = threadIdx.x;
  if (k < kMostParts) staged[k] = a.is_sliced;
  if (k == 0) {
    runs = !is_stopped(a.stop);
    is_right = true;
  }
  __syncthreads();
  if (!runs) return;
  if (k < operand_count(a)) {
    const PeerCall* const peer_call = is_of_peer(a, k) ? peer_call_of(a, k) : nullptr;
    pointers[k] = address_of(a, k, peer_call);
    if (peer_call != nullptr && !is_of_call(*peer_call, a, part_of(a, k))) {
      is_right = false;
      volatile std::uint64_t* const mismatch = a.mismatch;
      if (*mismatch == 0) *mismatch = mismatch_of(a.number, a.operands[k].buffer / 2);
    }
    if (peer_call != nullptr && is_staged(*peer_call)) staged[part_of(a, k)] = true;
  }
  __syncthreads();
  if (is_right) exchange_n<Element, Op>(a, pointers, staged, place_of_thread());
  if (a.flag_count > 0 && is_last_block(a.ended) && k < a.flag_count) set_flag(a.flags[k]);
}

}  // namespace

#define XYLEM_KERNEL(name, Arguments, Element, run)                            \
  extern "C" __global__ void __launch_bounds__(kMostThreads, kBlocks<Element>) \
      xylem_##name(const __grid_constant__ Arguments arguments) {              \
    run(arguments);                                                            \
  }
#include "cuda/kernels/kernels.inc"

extern "C" __global__ void __launch_bounds__(kMostThreads)
    xylem_signal(const __grid_constant__ SignalArguments arguments) {
  signal(arguments, place_of_thread());
}

}  // namespace xylem::execution::cuda
