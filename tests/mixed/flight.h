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

/// Memory for one buffer, at an odd address, with guard bytes before and after it.
class Place {
 public:
  Place() = default;
  /// `bytes` bytes, `offset` bytes after the start of a cache line. The memory comes from
  /// xylem::allocate() if `shared` is true, and otherwise from the heap.
  Place(std::uint64_t bytes, std::uint64_t offset, bool shared);
  /// `bytes` bytes in the memory of a device: `stream` is the first that uses them, `last` the
  /// last.
  Place(std::uint64_t bytes,
        std::uint64_t offset,
        Device& device,
        Device::Kind kind,
        std::uint32_t stream,
        std::uint32_t last);

  /// The address that is passed to calls for a position in data().
  std::byte* address_of(std::byte* place) const noexcept { return place + to_address_; }
  std::byte* data() const noexcept { return data_; }
  std::uint64_t bytes() const noexcept { return bytes_; }
  bool guards_hold() const noexcept;
  /// fill() writes a pattern over the buffer. is_filled() is true if the pattern is still there.
  void fill() noexcept;
  bool is_filled() const noexcept;
  /// Of a device's memory; empty for memory of the host.
  const Room& room() const noexcept { return room_; }
  /// Gives a device's memory back, although data() is still to be checked.
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
  /// Makes the buffers, some of them on the device if there is one, and begins the call. On a
  /// device with streams, a stream writes the inputs before the call. If the call is in a stream's
  /// order, a stream reads the outputs right behind it, and the buffers are then often used again
  /// at once, whether the call has ended or not. `succeeds` tells that no call of the program may
  /// fail: then the test waits for some calls only by their stream. `is_mesh` tells that the
  /// devices of the communicator form a mesh (Communicator::bind()), so all ranks make a collective
  /// on streams, or none does.
  static Flight begin(const MixedCall& call,
                      const Communicator& comm,
                      Device* device = nullptr,
                      bool succeeds = false,
                      bool is_mesh = false);

  const MixedCall& call() const noexcept { return call_; }
  bool has_ended() const noexcept { return work_.test() && receive_.test(); }
  /// Waits until the call ends and returns its outcome. Then the test sees what is in the buffers.
  /// Fails with `internal` if a stream does not go on.
  /// A message that is longer than its receive must fail there, and may fail at its sender; that
  /// counts as a success.
  Status wait() const;
  /// Fills the buffers with a pattern. is_filled() is true if it is still there.
  void fill();
  bool is_filled() const;
  /// Checks the output of a call that succeeded. Returns what is wrong, or an empty string.
  std::string check() const;
  std::uint64_t elements() const noexcept { return checked_; }

  Place input, output;

 private:
  /// How the calls of a rank on its device relate to its streams.
  enum class Order : std::uint8_t {
    none,   ///< The test waits for the producer, and for the call before the consumer.
    held,   ///< Communicator::on()
    after,  ///< Communicator::after() and Work::block()
  };
  void draw_order(bool is_mesh);
  void make(std::uint64_t in, std::uint64_t out, bool in_place, std::uint64_t in_at);
  Place make_place(std::uint64_t bytes, std::uint64_t offset, std::uint64_t chance);
  /// Lets a stream write the inputs, and returns `comm`.
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
  Device* device_ = nullptr;    ///< Device of this call's buffers; null for the host.
  bool is_all_on_host_ = true;  ///< No rank has a device. Only then may messages be too long.
  Memory memory_;               ///< What the call is told of its buffers.
  Order order_ = Order::none;
  std::uint32_t before_ = 0, behind_ = 0;  ///< Streams of the producer and the consumer.
  std::byte* in_ = nullptr;
  std::byte* out_ = nullptr;
  Work work_, receive_;
  Status refusal_;                       ///< Why a stream could not wait for the call.
  std::optional<std::uint32_t> source_;  ///< World rank that a receive must report as its source.
  std::uint32_t to_ = 0, from_ = 0;      ///< Of a message, in the communicator.
  std::uint32_t world_to_ = 0;           ///< World rank of `to_`.
  std::vector<Part> parts_;
  std::uint64_t checked_ = 0;
};

}  // namespace xylem::test::mixed
