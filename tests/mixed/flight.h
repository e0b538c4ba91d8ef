// SPDX-License-Identifier: Apache-2.0
//
// A call under way: its buffers, the guard bytes around them, and the expected output.
#pragma once

#include "mixed/program.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace xylem::test::mixed {

/// Memory of a device: the address that is passed to calls, and the address at which the test sees
/// the same bytes.
struct DeviceRoom {
  std::byte* address = nullptr;
  std::byte* seen = nullptr;
};
struct DeviceBuffers {
  Memory memory;
  std::function<DeviceRoom(std::uint64_t bytes)> allocate;
};

/// Memory for one buffer, at an odd address, with guard bytes before and after it.
class Place {
 public:
  Place() = default;
  /// `bytes` bytes, `offset` bytes after the start of a cache line. The memory comes from
  /// xylem::allocate() if `shared` is true, and otherwise from the heap.
  Place(std::uint64_t bytes, std::uint64_t offset, bool shared);
  /// `bytes` bytes in the memory of a device.
  Place(std::uint64_t bytes, std::uint64_t offset, const DeviceBuffers& device);

  /// The address that is passed to calls for a position in data().
  std::byte* address_of(std::byte* place) const noexcept { return place + to_address_; }
  std::byte* data() const noexcept { return data_; }
  std::uint64_t bytes() const noexcept { return bytes_; }
  bool guards_hold() const noexcept;
  /// fill() writes a pattern over the buffer. is_filled() is true if the pattern is still there.
  void fill() noexcept;
  bool is_filled() const noexcept;

 private:
  std::vector<std::byte> ordinary_;
  Allocation shared_;
  void lay(std::byte* memory, std::uint64_t whole, std::uint64_t offset);

  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
  std::ptrdiff_t to_address_ = 0;
};

class Flight {
 public:
  /// Makes the buffers, some of them on the device if there is one, and begins the call.
  static Flight begin(const MixedCall& call,
                      const Communicator& comm,
                      const DeviceBuffers* device = nullptr);

  const MixedCall& call() const noexcept { return call_; }
  bool has_ended() const noexcept { return work_.test() && receive_.test(); }
  /// Waits until the call ends and returns its outcome.
  Status wait() const { return wait_all(work_, receive_); }
  /// Checks the output of a call that succeeded. Returns what is wrong, or an empty string.
  std::string check() const;
  std::uint64_t elements() const noexcept { return checked_; }

  Place input, output;

 private:
  void make(std::uint64_t in, std::uint64_t out, bool in_place, std::uint64_t in_at);
  void write(std::uint64_t count, std::uint64_t at, std::uint64_t first);
  void start(const Communicator& comm);
  void start_uneven(const Communicator& comm);
  void start_message(const Communicator& comm);
  void expect(std::uint64_t at, std::uint64_t count, std::uint32_t rank, std::uint64_t first);
  void expect_reduced(std::uint64_t count, std::uint64_t first);
  ConstBuffer in(std::uint64_t count, std::uint64_t at = 0) const;
  Buffer out(std::uint64_t count) const;

  /// Expected values: the output elements that begin at `at` equal the elements that begin at
  /// `first` of the input of `rank` or, if there is no rank, of the reduction.
  struct Part {
    std::uint64_t at = 0, count = 0;
    std::optional<std::uint32_t> rank;
    std::uint64_t first = 0;
  };

  MixedCall call_;
  std::uint32_t rank_ = 0, size_ = 1, root_ = 0;
  bool in_place_ = false;
  const DeviceBuffers* device_ = nullptr;  ///< Device of this call's buffers; null for the host.
  std::byte* in_ = nullptr;
  std::byte* out_ = nullptr;
  Work work_, receive_;
  std::optional<std::uint32_t> source_;  ///< World rank that a receive must report as its source.
  std::vector<Part> parts_;
  std::uint64_t checked_ = 0;
};

}  // namespace xylem::test::mixed
