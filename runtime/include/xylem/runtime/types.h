// SPDX-License-Identifier: Apache-2.0
//
// What users name in a call: element types, reduction operations and buffers.
#pragma once

#include "xylem/base/api.h"
#include "xylem/base/memory.h"
#include "xylem/base/status.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

namespace xylem {

/// Element types. The enumerators' values are the C ABI's and never change.
enum class DataType : std::uint8_t {
  int8 = 0,
  uint8 = 1,
  int16 = 2,
  uint16 = 3,
  int32 = 4,
  uint32 = 5,
  int64 = 6,
  uint64 = 7,
  boolean = 8,  ///< One byte; zero is false, anything else true; results are 0 or 1.
  float16 = 9,  ///< IEEE 754 binary16.
  bfloat16 = 10,
  float32 = 11,
  float64 = 12,
  float8_e4m3 = 13,  ///< OFP8 E4M3, torch's float8_e4m3fn: no infinity, greatest number 448.
  float8_e5m2 = 14,  ///< OFP8 E5M2, torch's float8_e5m2: infinities, greatest number 57344.
};
inline constexpr std::size_t kDataTypeCount = 15;

/// Bytes of one element.
XYLEM_API std::size_t size_of(DataType type) noexcept;
/// "float32", "bool" for boolean, …
XYLEM_API std::string_view name(DataType type) noexcept;
/// Parses a name or one of the usual short forms ("fp16", "half", "bf16", "float", "double",
/// "i32").
XYLEM_API Result<DataType> parse_data_type(std::string_view text);

/// Reduction operations. The enumerators' values are the C ABI's and never change.
///
/// Integers wrap on overflow. Sums, products and averages of floats of 16 and 8 bits are computed
/// in fp32 within one reduce step and rounded once, to nearest even; `min` and `max` propagate NaN.
/// A result that is too large for its type becomes an infinity. float8_e4m3 has no infinity, so
/// such a result becomes 448 or -448, as in conversions by torch (from 2.12 on) and NCCL; only a
/// NaN becomes NaN. `avg` is the sum divided once, at the end, by the number of ranks (integers:
/// truncated toward zero). `bit_*` are defined for integers and bool. On bool, sum and max are
/// logical or, product and min are logical and, and avg is refused.
enum class RedOp : std::uint8_t {
  sum = 0,
  product = 1,
  min = 2,
  max = 3,
  avg = 4,
  bit_and = 5,
  bit_or = 6,
  bit_xor = 7,
  premul_sum =
      8,  ///< Each rank's input is multiplied by its ReduceOp::factor, then summed. Floats only.
};
inline constexpr std::size_t kRedOpCount = 9;

/// "sum", "prod", "min", "max", "avg", "and", "or", "xor", "premul_sum".
XYLEM_API std::string_view name(RedOp op) noexcept;
XYLEM_API Result<RedOp> parse_redop(std::string_view text);

/// A reduction and, for premul_sum, the factor of this rank.
struct ReduceOp {
  RedOp op = RedOp::sum;
  double factor = 1.0;

  ReduceOp(RedOp which = RedOp::sum) : op(which) {}  // NOLINT: an enumerator is an operation
  static ReduceOp premul_sum(double factor) {
    ReduceOp result(RedOp::premul_sum);
    result.factor = factor;
    return result;
  }
};

/// OK if `op` is defined on `type`; otherwise `unsupported` or `invalid_argument` with the reason.
XYLEM_API Status check_reduction(RedOp op, DataType type);

namespace detail {
template <typename T>
constexpr DataType data_type_of() {
  if constexpr (std::is_same_v<T, bool>) return DataType::boolean;
  else if constexpr (std::is_same_v<T, float>) return DataType::float32;
  else if constexpr (std::is_same_v<T, double>) return DataType::float64;
  else {
    static_assert(std::is_integral_v<T>, "name the type: Buffer{data, count, DataType::…}");
    constexpr bool is_signed = std::is_signed_v<T>;
    if constexpr (sizeof(T) == 1) return is_signed ? DataType::int8 : DataType::uint8;
    else if constexpr (sizeof(T) == 2) return is_signed ? DataType::int16 : DataType::uint16;
    else if constexpr (sizeof(T) == 4) return is_signed ? DataType::int32 : DataType::uint32;
    else return is_signed ? DataType::int64 : DataType::uint64;
  }
}
/// The element type of a container with contiguous elements, such as a vector, an array or a
/// std::span.
template <typename Container>
using Element = typename decltype(std::span(std::declval<Container&>()))::element_type;
template <typename Container>
concept Contiguous = requires {
  typename Element<Container>;
};
/// A Contiguous container whose elements can be written.
template <typename Container>
concept Writable = Contiguous<Container> && !std::is_const_v<Element<Container>>;
}  // namespace detail

/// A stream of a device, in whose order calls run (Communicator::on). Xylem never owns the stream:
/// the caller keeps it alive until all its work has completed. Its priority must be lower than the
/// device's greatest, which Xylem's own streams have. Streams of equal priority may share a
/// hardware queue, and a stream that waits for a call would then block the work of that call.
struct Stream {
  void* handle = nullptr;  ///< For CUDA a CUstream, which is a cudaStream_t; null is the legacy
                           ///< default stream.
  Memory device{MemoryKind::cuda, 0};
};

/// Default of Buffer::memory: each call finds out where the memory is.
inline constexpr Memory kFoundByCall{MemoryKind::unknown, -1};

/// `count` elements of `type` at `data`, which an operation writes. Xylem never owns the memory:
/// the caller keeps it alive and untouched until the Work that uses it has ended. `data` may be
/// null only if `count` is 0.
///
/// `memory` need not be stated. If a CUDA driver is loaded in the process, each call then asks it
/// where `data` is; otherwise `data` is in host memory. Memory that is stated to be the host's is
/// not checked: if it is a device's, the process gets a signal. Managed memory (cudaMallocManaged)
/// counts as memory of the device on which it was allocated. Pinned memory is host memory.
///
/// A vector, array or std::span of numbers is a buffer: `all_reduce(gradients, gradients)`.
/// Temporary containers are not, since the memory must outlive the call.
struct Buffer {
  void* data = nullptr;
  std::size_t count = 0;
  DataType type = DataType::float32;
  Memory memory = kFoundByCall;

  Buffer() = default;
  Buffer(void* address, std::size_t elements, DataType element_type, Memory where = kFoundByCall)
      : data(address), count(elements), type(element_type), memory(where) {}
  template <typename T>
  requires(!std::is_const_v<T>) Buffer(std::span<T> elements)  // NOLINT: a span is a buffer
      : data(elements.data()), count(elements.size()), type(detail::data_type_of<T>()) {}
  template <detail::Writable Container>
  Buffer(Container& elements)  // NOLINT: a container is a buffer
      : Buffer(std::span<detail::Element<Container>>(elements)) {}

  std::size_t bytes() const noexcept { return count * size_of(type); }
};

/// As Buffer, for memory that an operation only reads.
struct ConstBuffer {
  const void* data = nullptr;
  std::size_t count = 0;
  DataType type = DataType::float32;
  Memory memory = kFoundByCall;

  ConstBuffer() = default;
  ConstBuffer(const void* address,
              std::size_t elements,
              DataType element_type,
              Memory where = kFoundByCall)
      : data(address), count(elements), type(element_type), memory(where) {}
  ConstBuffer(const Buffer& buffer)  // NOLINT: what can be written can be read
      : data(buffer.data), count(buffer.count), type(buffer.type), memory(buffer.memory) {}
  template <typename T>
  ConstBuffer(std::span<T> elements)  // NOLINT
      : data(elements.data()),
        count(elements.size()),
        type(detail::data_type_of<std::remove_const_t<T>>()) {}
  template <detail::Contiguous Container>
  ConstBuffer(Container& elements)  // NOLINT
      : ConstBuffer(std::span<detail::Element<Container>>(elements)) {}

  std::size_t bytes() const noexcept { return count * size_of(type); }
};

}  // namespace xylem
