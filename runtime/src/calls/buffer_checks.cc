// SPDX-License-Identifier: Apache-2.0
#include "calls/buffer_checks.h"

#include "xylem/transport/transport.h"

#include <fmt/format.h>

#include <cstddef>
#include <limits>
#include <utility>

namespace xylem::runtime {
namespace {

/// The largest possible size of an object. If a call needs a larger buffer, its count is wrong.
constexpr std::uint64_t kMostBytes = std::numeric_limits<std::ptrdiff_t>::max();
constexpr std::size_t kLargestElement = 16;  ///< Bytes of the largest data type.

std::uint64_t most_elements(DataType type) { return kMostBytes / size_of(type); }

/// Compares the memory that the user has stated for a buffer with the memory that the driver
/// reports. If a device computes with memory of another kind, it may fault. The fault destroys the
/// device's context, and with it all work of the application on the device.
Status check_statement(const char* which,
                       const ConstBuffer& buffer,
                       const ComputeDevices& devices) {
  if (buffer.count == 0 || !devices.may_find()) return {};
  const auto found = devices.find(buffer.data);
  if (found.memory == buffer.memory || found.is_pinned) return {};
  if (found.memory == execution::kQueryFailed) return {};  // The driver's query failed.
  return bad(fmt::format("{}: it is said to be in {}, but {} is in {}; leave its memory unstated",
                         which, describe(buffer.memory), buffer.data, describe(found.memory)));
}

bool overlap(const void* a, std::uint64_t a_bytes, const void* b, std::uint64_t b_bytes) {
  const auto x = reinterpret_cast<std::uintptr_t>(a);
  const auto y = reinterpret_cast<std::uintptr_t>(b);
  return a_bytes > 0 && b_bytes > 0 && x < y + b_bytes && y < x + a_bytes;
}

}  // namespace

Status bad(std::string message) { return failure(Code::invalid_argument, std::move(message)); }

std::string describe(const Memory& memory) {
  if (memory.kind == MemoryKind::host) return "host memory";
  return fmt::format("{} memory of device {}", name(memory.kind), memory.device);
}

Status check_elements(const char* which, std::uint64_t count, DataType type) {
  if (static_cast<std::size_t>(type) >= kDataTypeCount) {
    return bad(fmt::format("{}: {} is not a DataType", which, static_cast<int>(type)));
  }
  if (count <= most_elements(type)) return {};
  return bad(fmt::format(
      "{}: {} elements of {} are more than the {} that memory can hold; check the count", which,
      count, name(type), most_elements(type)));
}

Status check_buffer(const char* which, const ConstBuffer& buffer, const Caller& caller) {
  XYLEM_TRY(check_elements(which, buffer.count, buffer.type));
  if (buffer.data == nullptr && buffer.count > 0) {
    return bad(fmt::format("{}: null address with {} elements; only an empty buffer may be null",
                           which, buffer.count));
  }
  if (buffer.memory.kind == MemoryKind::host) return {};
  if (caller.devices == nullptr) return failure(Code::unsupported, "only host memory is allowed");
  const auto device = caller.devices->of(buffer.memory);
  if (!device) {
    return failure(device.status().code(),
                   fmt::format("{}: {} memory: {}", which, name(buffer.memory.kind),
                               device.status().message()));
  }
  return check_statement(which, buffer, *caller.devices);
}

bool is_plain(const ConstBuffer& buffer) noexcept {
  constexpr std::uint64_t kMostElements = transport::kLargestMessage / kLargestElement;
  return static_cast<std::size_t>(buffer.type) < kDataTypeCount && buffer.data != nullptr &&
         buffer.memory.kind == MemoryKind::host && buffer.count <= kMostElements;
}

Status check_rank(const char* which, std::uint32_t rank, const Caller& caller) {
  if (rank < caller.size) return {};
  return bad(
      fmt::format("{} {}: the communicator has ranks 0 to {}", which, rank, caller.size - 1));
}

Status check_buffers(const Needs& needs,
                     const ConstBuffer& input,
                     const Buffer& output,
                     const Caller& caller) {
  if (needs.input) XYLEM_TRY(check_buffer("input", input, caller));
  if (needs.output) XYLEM_TRY(check_buffer("output", output, caller));
  return {};
}

Status check_pair(collectives::Collective collective,
                  const Needs& needs,
                  const ConstBuffer& input,
                  const Buffer& output) {
  if (needs.input && input.count != needs.input_count) {
    return bad(fmt::format("{}: the input has {} elements, the call needs {}", name(collective),
                           input.count, needs.input_count));
  }
  if (needs.output && output.count != needs.output_count) {
    return bad(fmt::format("{}: the output has {} elements, the call needs {}", name(collective),
                           output.count, needs.output_count));
  }
  if (!needs.input || !needs.output) return {};
  if (input.type != output.type) {
    return bad(fmt::format("{}: the input is {}, the output {}; they must be alike",
                           name(collective), name(input.type), name(output.type)));
  }
  if (input.memory != output.memory) {
    return bad(
        fmt::format("{}: the input is in {}, the output in {}; copy one of them, so that "
                    "both are in the same memory",
                    name(collective), describe(input.memory), describe(output.memory)));
  }
  if (!overlap(input.data, input.bytes(), output.data, output.bytes())) return {};
  const bool input_is_part = input.count <= output.count;
  const auto* whole = static_cast<const std::byte*>(input_is_part ? output.data : input.data);
  const auto* part = static_cast<const std::byte*>(input_is_part ? input.data : output.data);
  const auto offset = input.count == output.count ? 0 : needs.in_place_offset * size_of(input.type);
  if (needs.may_be_in_place && part == whole + offset) return {};
  return bad(fmt::format(
      "{}: input and output overlap, but not as an in-place call lays them (see communicator.h)",
      name(collective)));
}

Result<std::uint64_t> whole_of(collectives::Collective collective,
                               std::uint64_t count,
                               DataType type,
                               std::uint32_t ranks) {
  if (count <= most_elements(type) / ranks) return count * ranks;
  return bad(
      fmt::format("{}: {} ranks with {} elements of {} each have more than the {} that memory can "
                  "hold; give each rank less",
                  name(collective), ranks, count, name(type), most_elements(type)));
}

Result<std::uint64_t> share_of(collectives::Collective collective,
                               std::uint64_t whole,
                               std::uint32_t ranks) {
  if (whole % ranks == 0) return whole / ranks;
  return bad(fmt::format("{}: {} elements cannot be divided among {} ranks; use the _v call",
                         name(collective), whole, ranks));
}

Result<std::uint64_t> sum_of(const char* which,
                             std::span<const std::uint64_t> counts,
                             DataType type) {
  const std::uint64_t most = most_elements(type);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > most - sum) {
      return bad(fmt::format(
          "{}: entry {} ({}) takes the sum above the {} elements of {} that memory can hold; check "
          "the counts",
          which, i, counts[i], most, name(type)));
    }
    sum += counts[i];
  }
  return sum;
}

Status check_counts(const char* which,
                    std::span<const std::uint64_t> counts,
                    const Caller& caller) {
  if (counts.size() == caller.size) return {};
  return bad(fmt::format("{}: {} entries for {} ranks; give one per rank", which, counts.size(),
                         caller.size));
}

}  // namespace xylem::runtime
