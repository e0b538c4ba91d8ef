// SPDX-License-Identifier: Apache-2.0
//
// The device kernels, under the names by which they are found in the module (arguments.h).
#include "cuda/kernels/arguments.h"
#include "cuda/kernels/element.h"
#include "cuda/kernels/reduce.h"

#include <cstdint>

namespace xylem::execution::cuda {
namespace {

/// So many blocks of kMostThreads threads are to fit on a processor at once, since what is under
/// way between them and memory decides how fast they are. Eight are all that Ampere and Hopper
/// hold, which leaves a thread 32 registers; elements of 8 bits, 16 in a vector, need more.
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

}  // namespace

#define XYLEM_REDUCE(op, Op, type, Element)                                           \
  extern "C" __global__ void __launch_bounds__(kMostThreads, kBlocks<Element>)        \
      xylem_reduce_##op##_##type(const __grid_constant__ ReduceArguments arguments) { \
    reduce_n<Element, Op>(arguments, place_of_thread());                              \
  }
#define XYLEM_SCALE(type, Element)                                             \
  extern "C" __global__ void __launch_bounds__(kMostThreads, kBlocks<Element>) \
      xylem_scale_##type(const __grid_constant__ ScaleArguments arguments) {   \
    scale<Element>(arguments, place_of_thread());                              \
  }
#include "cuda/kernels/kernels.inc"

extern "C" __global__ void __launch_bounds__(kMostThreads)
    xylem_signal(const __grid_constant__ SignalArguments arguments) {
  signal(arguments, place_of_thread());
}

}  // namespace xylem::execution::cuda
