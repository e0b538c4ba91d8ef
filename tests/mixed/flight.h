// SPDX-License-Identifier: Apache-2.0
//
// A call under way: its buffers, the guard bytes around them, and the expected output.
#pragma once

#include "mixed/device.h"
#include "mixed/program.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace xylem::test::mixed {

/// Memory for one buffer, at an odd address, with guard bytes before and after the buffer.
class Place {
 public:
  Place() = default;
  /// Makes a buffer of `bytes` bytes that begins `offset` bytes after the start of a cache line.
  /// The memory comes from xylem::allocate() if `shared` is true, and otherwise from the heap.
  Place(std::uint64_t bytes, std::uint64_t offset, bool shared);
  /// Makes a buffer of `bytes` bytes in device memory. `stream` is the first stream that uses it,
  /// and `last` the last stream.
  Place(std::uint64_t bytes,
        std::uint64_t offset,
        Device& device,
        Device::Kind kind,
        std::uint32_t stream,
        std::uint32_t last);

  /// Converts an address in data() to the address that is passed to calls.
  std::byte* address_of(std::byte* place) const noexcept { return place + to_address_; }
  std::byte* data() const noexcept { return data_; }
  std::uint64_t bytes() const noexcept { return bytes_; }
  bool guards_hold() const noexcept;
  /// fill() writes a pattern to the buffer. is_filled() returns true if the buffer still contains
  /// the pattern.
  void fill() noexcept;
  bool is_filled() const noexcept;
  /// The device memory of the buffer; empty if the buffer is in host memory.
  const Room& room() const noexcept { return room_; }
  /// Releases the device memory. data() stays valid, so that the result can be checked.
  void release() noexcept { room_.memory.reset(); }

 private:
  std::vector<std::byte> ordinary_;
  Allocation shared_;
  Room room_;
  void lay(std::byte* memory, std::uint64_t whole, std::uint64_t offset);

  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
  std::ptrdiff_t to_address_ = 0;
};

class Flight {
 public:
  /// Makes the buffers, and begins the call. If there is a device, some buffers are on the device.
  /// On a device with streams, a stream writes the inputs before the call.
  /// If the call is ordered by a stream, a stream reads the outputs directly after the call. The
  /// buffers are then often released at once, even if the call has not ended.
  /// `succeeds` is true if no call of the program may fail. Then the test waits for some calls only
  /// through their stream.
  static Flight begin(const MixedCall& call,
                      const Communicator& comm,
                      Device* device = nullptr,
                      bool succeeds = false);

  const MixedCall& call() const noexcept { return call_; }
  bool runs_on_devices() const { return work_.runs_on_devices(); }
  bool has_ended() const noexcept { return work_.test() && receive_.test(); }
  /// Waits until the call ends, and returns its outcome. After that, the test can read the buffers.
  /// Returns `internal` if a stream does not finish its work.
  /// A message that is longer than its receive must fail at the receiver, and may fail at the
  /// sender. wait() then returns success.
  Status wait() const;
  /// fill() writes a pattern to the buffers. is_filled() returns true if they still contain the
  /// pattern.
  void fill();
  bool is_filled() const;
  /// Checks the output of a call that succeeded. Returns what is wrong, or an empty string.
  std::string check() const;
  std::uint64_t elements() const noexcept { return checked_; }

  Place input, output;

 private:
  /// How a call is ordered with the streams of the rank's device.
  enum class Order : std::uint8_t {
    none,   ///< The thread waits between producer, call and consumer.
    held,   ///< Communicator::on()
    after,  ///< Communicator::after() and Work::block()
  };
  void draw_order(Binding binding);
  void make(std::uint64_t in, std::uint64_t out, bool in_place, std::uint64_t in_at);
  Place make_place(std::uint64_t bytes, std::uint64_t offset, std::uint64_t chance);
  /// Enqueues copies of the inputs to the device on a stream, and returns `comm`.
  Communicator produce(const Communicator& comm) const;
  void consume() const;
  template <typename Do>
  void for_rooms(const Do& act) const;
  static Status stalled();
  Status outcome() const;
  bool is_too_long_for(std::uint32_t rank) const noexcept {
    return room_of(call_, rank, is_all_on_host_) < call_.count;
  }
  void write(std::uint64_t count, std::uint64_t at, std::uint64_t first);
  void start(const Communicator& comm);
  void start_uneven(const Communicator& comm);
  void start_message(const Communicator& comm);
  void expect(std::uint64_t at, std::uint64_t count, std::uint32_t rank, std::uint64_t first);
  void expect_reduced(std::uint64_t count, std::uint64_t first);
  ConstBuffer in(std::uint64_t count, std::uint64_t at = 0) const;
  Buffer out(std::uint64_t count) const;

  /// A range of expected output: `count` elements that begin at `at`. They are equal to the
  /// elements that begin at `first` of the input of `rank` or, if `rank` is empty, of the
  /// reduction.
  struct Part {
    std::uint64_t at = 0, count = 0;
    std::optional<std::uint32_t> rank;
    std::uint64_t first = 0;
  };

  MixedCall call_;
  std::uint32_t rank_ = 0, size_ = 1, root_ = 0;
  bool in_place_ = false;
  Device* device_ = nullptr;    ///< Device of this call's buffers; null for the host.
  bool is_all_on_host_ = true;  ///< If true, messages may be longer than their receives.
  Memory memory_;               ///< The kind of memory that is passed to the call.
  Order order_ = Order::none;
  bool may_be_pinned_ = true;
  std::uint32_t before_ = 0, behind_ = 0;  ///< Streams of the producer and the consumer.
  std::byte* in_ = nullptr;
  std::byte* out_ = nullptr;
  Work work_, receive_;
  Status refusal_;                       ///< Why a stream could not be made to wait for the call.
  std::optional<std::uint32_t> source_;  ///< World rank that the receive must report as its source.
  std::uint32_t to_ = 0, from_ = 0;      ///< Ranks in the communicator.
  std::uint32_t world_to_ = 0;           ///< World rank of `to_`.
  std::vector<Part> parts_;
  std::uint64_t checked_ = 0;
};

}  // namespace xylem::test::mixed
