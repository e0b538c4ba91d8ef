// SPDX-License-Identifier: Apache-2.0
//
// Types of the arguments of calls: streams and buffers.
#pragma once

#include "xylem/base/api.h"
#include "xylem/base/data_type.h"
#include "xylem/base/memory.h"
#include "xylem/base/status.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

namespace xylem {

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
/// device's greatest priority, at which Xylem's own streams run. Streams of equal priority may
/// share a hardware queue. A stream that waits for a call would then block Xylem's work for this
/// call.
struct Stream {
  void* handle = nullptr;  ///< For CUDA a CUstream, which is a cudaStream_t; null is the legacy
                           ///< default stream.
  Memory device{MemoryKind::cuda, 0};
};

/// What the ranks of a communicator know of each other's memory (Communicator::bind()); the same on
/// all ranks.
enum class Binding : std::uint8_t {
  none,  ///< Nothing: in one call, some ranks may have their buffers on the host and others not.
  same_memory,  ///< All ranks have their buffers of a collective in the same kind of memory.
  mesh,         ///< In addition, every rank has a device that reaches the memory of all others.
};

/// Default of Buffer::memory: each call determines where `data` is.
inline constexpr Memory kFoundByCall{MemoryKind::unknown, -1};

/// `count` elements of `type` at `data`, which an operation writes. Xylem never owns the memory:
/// the caller keeps it alive and untouched until the Work that uses it has ended. `data` may be
/// null only if `count` is 0.
///
/// `memory` may be left at its default. If a CUDA driver is loaded in the process, each call then
/// asks the driver where `data` is; otherwise `data` counts as host memory. If `memory` is host
/// memory, the call does not check this: if `data` is device memory in fact, the process ends by a
/// signal. Managed memory (cudaMallocManaged) counts as memory of the device on which it was
/// allocated. Pinned memory is host memory.
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

/// Like Buffer, for memory that an operation only reads.
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
