// SPDX-License-Identifier: Apache-2.0
//
// The device kernels, under the names by which the driver finds them (arguments.h).
#include "cuda/kernels/arguments.h"
#include "cuda/kernels/element.h"
#include "cuda/kernels/exchange.h"
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

/// The block that runs this code (exchange.h).
class DeviceBlock {
 public:
  template <class F>
  __device__ void each(F&& f) const {
    f(threadIdx.x);
    __syncthreads();
  }
  template <class F>
  __device__ void compute(F&& f) const {
    f(place_of_thread());
  }
  __device__ bool is_first() const { return blockIdx.x == 0; }
  __device__ std::uint32_t blocks() const { return gridDim.x; }
  template <class T>
  __device__ T* at(T* address) const {
    return address;
  }
  template <class T>
  __device__ T* at_target(T* address) const {
    return address;
  }
  template <class Element>
  __device__ void reach(const ExchangeArguments&, const BlockState&) const {}
  __device__ void fence() const { __threadfence_system(); }
  __device__ std::uint32_t await(const std::uint32_t* flag) const {
    std::uint32_t value = kClear;
    do value = *static_cast<const volatile std::uint32_t*>(flag);
    while (value == kClear);
    return value;
  }
  __device__ void clear(std::uint32_t* flag) const { set(flag, kClear); }
  template <class T>
  __device__ void set(T* word, T value) const {
    *static_cast<volatile T*>(word) = value;
  }
  __device__ std::uint32_t add(std::uint32_t* word, std::uint32_t value) const {
    return atomicAdd(word, value);
  }
};

template <class Element, class Op>
__device__ void run_reduce(const ReduceArguments& arguments) {
  reduce_n<Element, Op>(arguments, place_of_thread());
}

template <class Element>
__device__ void run_scale(const ScaleArguments& arguments) {
  scale<Element>(arguments, place_of_thread());
}

template <class Element, class Op>
__device__ void run_exchange(const ExchangeArguments& arguments) {
  __shared__ BlockState state;
  exchange<Element, Op>(arguments, DeviceBlock(), state);
}

}  // namespace

#define XYLEM_KERNEL(name, Arguments, Element, run)                            \
  extern "C" __global__ void __launch_bounds__(kMostThreads, kBlocks<Element>) \
      xylem_##name(const __grid_constant__ Arguments arguments) {              \
    run(arguments);                                                            \
  }
#include "cuda/kernels/kernels.inc"

}  // namespace xylem::execution::cuda
