// SPDX-License-Identifier: Apache-2.0
//
// The reductions of int8 to uint64 and bool, on every instruction set. If a signed and an unsigned
// type have the same results, they share a kernel on unsigned lanes, where wrapping is defined.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/integer_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// Included after the headers of Highway, which choose the target:
#include "kernels/combine-inl.h"
#include "kernels/divide.h"
#include "kernels/element-inl.h"
#include "kernels/families.h"
#include "kernels/fold-inl.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace xylem::execution {
namespace HWY_NAMESPACE {

template <class Element, class Op>
void integer_fold(void* target,
                  const void* const* sources,
                  std::size_t source_count,
                  std::size_t count,
                  Finish finish) {
  if (finish.divisor > 1) refuse_divisor(finish.divisor);
  fold<Element, Op>(target, sources, source_count, 0, count);
}

template <class T>
void integer_sum(void* target,
                 const void* const* sources,
                 std::size_t source_count,
                 std::size_t count,
                 Finish finish) {
  // An average needs a second pass, which divides. Both passes work block by block, so that the
  // second pass finds its elements in the first-level cache.
  const bool is_average = finish.divisor > 1;
  const std::size_t stride = is_average ? 4096 / sizeof(T) : count;
  for (std::size_t begin = 0; begin < count; begin += stride) {
    const std::size_t block = std::min(stride, count - begin);
    fold<Integer<std::make_unsigned_t<T>>, Sum>(target, sources, source_count, begin, block);
    if (is_average) divide(static_cast<T*>(target) + begin, block, finish.divisor);
  }
}

template <class T>
ReduceKernel integer_kernel_of(RedOp op) {
  using Unsigned = std::make_unsigned_t<T>;
  using Multiplied = std::conditional_t<sizeof(T) == 1, WidenedByte, Integer<Unsigned>>;
  switch (op) {
    case RedOp::sum:
    case RedOp::avg: return &integer_sum<T>;
    case RedOp::product: return &integer_fold<Multiplied, Product>;
    case RedOp::min: return &integer_fold<Integer<T>, IntegerMin>;
    case RedOp::max: return &integer_fold<Integer<T>, IntegerMax>;
    case RedOp::bit_and: return &integer_fold<Integer<Unsigned>, BitAnd>;
    case RedOp::bit_or: return &integer_fold<Integer<Unsigned>, BitOr>;
    case RedOp::bit_xor: return &integer_fold<Integer<Unsigned>, BitXor>;
    case RedOp::premul_sum: return nullptr;
  }
  return nullptr;
}

ReduceKernel boolean_kernel_of(RedOp op) {
  switch (op) {
    case RedOp::sum:
    case RedOp::max:
    case RedOp::bit_or: return &integer_fold<Boolean, BitOr>;
    case RedOp::product:
    case RedOp::min:
    case RedOp::bit_and: return &integer_fold<Boolean, BitAnd>;
    case RedOp::bit_xor: return &integer_fold<Boolean, BitXor>;
    case RedOp::avg:
    case RedOp::premul_sum: return nullptr;
  }
  return nullptr;
}

ReduceKernel choose_integer_kernel(RedOp op, DataType type) {
  switch (type) {
    case DataType::int8: return integer_kernel_of<std::int8_t>(op);
    case DataType::uint8: return integer_kernel_of<std::uint8_t>(op);
    case DataType::int16: return integer_kernel_of<std::int16_t>(op);
    case DataType::uint16: return integer_kernel_of<std::uint16_t>(op);
    case DataType::int32: return integer_kernel_of<std::int32_t>(op);
    case DataType::uint32: return integer_kernel_of<std::uint32_t>(op);
    case DataType::int64: return integer_kernel_of<std::int64_t>(op);
    case DataType::uint64: return integer_kernel_of<std::uint64_t>(op);
    case DataType::boolean: return boolean_kernel_of(op);
    default: return nullptr;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace xylem::execution
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace xylem::execution {

HWY_EXPORT(choose_integer_kernel);

ReduceKernel integer_kernel(RedOp op, DataType type) noexcept {
  return HWY_DYNAMIC_DISPATCH(choose_integer_kernel)(op, type);
}

}  // namespace xylem::execution
#endif  // HWY_ONCE
