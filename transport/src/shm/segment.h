// SPDX-License-Identifier: Apache-2.0
//
// A segment: the memory that one transport writes and its peers read. In the shm transport, the
// words channel and ring have the following meanings, and not those that they have in a schedule.
//
//   header │ credits, one line per incoming channel │ withdrawals, one line per outgoing channel │
//   rings, one per outgoing channel │ slots
//
// A channel leads from one endpoint to its peer. Its ring of entries is in the sender's segment.
// Its credits, which report the receiver's progress, are in the receiver's segment. So every word
// of shared memory has exactly one writer.
//
// Memory order. The sender fills an entry and the slot that it names, and then stores the entry's
// `turn` with release; the receiver loads `turn` with acquire before it reads entry and slot. After
// reading them, the receiver stores `consumed` with release; the sender loads `consumed` with
// acquire before it writes the entry or the slot again. `turn` counts laps from 1, so an entry of
// an earlier lap is never mistaken for a new one. A device may still be copying into an entry or
// its slot when later entries are published already. The receiver consumes entries in order, so it
// does not read the later entries before the `turn` of this entry is stored. The memory order of
// `state` is described in owner.h.
//
// A message may stay in memory that the peer can read in addition to the segment; its announcement
// then contains its Location. When the receiver has read the whole message, it flips the stream's
// bit in `granted`, stored with release after `fetched`. The sender loads `granted` with acquire
// before it reports the send complete, so that the application may reuse the buffer.
//
// A sender that cancels a message cannot wait for this grant. Instead it sets the stream's bit in
// `withdrawn`. A fence follows, so that this store precedes everything that is written to the
// buffer later. The receiver executes a fence between its reads of the message and its check of the
// bit. So a receiver that has read overwritten bytes finds the bit set, like the reader of a
// seqlock (Boehm, "Can seqlocks get along with programming language memory models?", MSPC 2012).
// The sender clears the bit before it uses the stream's id again, but only after the bit in
// `granted` has flipped: the receiver does not check `withdrawn` after granting a stream.
#pragma once

#include "xylem/base/status.h"
#include "xylem/base/unique_fd.h"
#include "xylem/transport/device_memory.h"
#include "xylem/transport/transport.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

namespace xylem::transport::shm {

inline constexpr std::size_t kLine = 64;
inline constexpr std::uint32_t kEntries = 64;  ///< Number of entries in each ring.
/// The most announced messages (streams) that one channel can have at a time. The first half of the
/// stream ids is for messages that fit into a slot; if none of these ids is free, such messages are
/// sent through slots. Longer messages use the second half, and wait if none is free.
inline constexpr std::uint32_t kStreams = 64;

/// The random name of a transport, of its segment, and of the socket over which it is reached
/// (peer_socket.h).
using Nonce = std::array<std::uint64_t, 2>;

/// The layout of a segment.
struct Geometry {
  std::uint32_t channels = 0;  ///< The number of outgoing channels, and also of incoming channels.
  std::uint32_t small_slots = 0, small_bytes = 0;
  std::uint32_t large_slots = 0, large_bytes = 0;

  std::uint32_t slots() const noexcept { return small_slots + large_slots; }
  std::uint32_t slot_bytes(std::uint32_t slot) const noexcept {
    return slot < small_slots ? small_bytes : large_bytes;
  }
  std::uint64_t credits_offset() const noexcept;
  std::uint64_t withdrawals_offset() const noexcept;
  std::uint64_t ring_offset(std::uint32_t channel) const noexcept;
  std::uint64_t slot_offset(std::uint32_t slot) const noexcept;
  std::uint64_t bytes() const noexcept { return slot_offset(slots()); }

  friend bool operator==(const Geometry&, const Geometry&) = default;
};

/// Plans a segment of `bytes` for `channels`. With 0 bytes, a suitable size is chosen.
Result<Geometry> plan_geometry(std::uint32_t channels, std::uint64_t bytes);

enum class OwnerState : std::uint32_t { awake, asleep, ended };

struct alignas(kLine) Header {
  std::uint64_t magic = 0;
  Nonce nonce{};
  Geometry geometry;
  alignas(kLine) std::atomic<OwnerState> state{OwnerState::awake};
  std::atomic<bool> computes{false};  ///< See HostPeers::show_computing().
};

/// The state of an incoming channel, written by the receiver.
struct alignas(kLine) Credit {
  std::atomic<std::uint64_t> consumed{0};  ///< Number of entries consumed.
  /// A bit for each stream. It flips when the receiver has decided where the message goes.
  std::atomic<std::uint64_t> granted{0};
  /// A bit for each stream, valid when the bit in `granted` has flipped. If set, the receiver has
  /// the whole message and needs no fragments.
  std::atomic<std::uint64_t> fetched{0};
  /// Odd during a hold: the receiver has so many messages without a receive that it accepts only
  /// messages that it requests (hold.h). Every change adds one.
  std::atomic<std::uint64_t> holds{0};
};

/// The state of an outgoing channel, written by the sender.
struct alignas(kLine) Withdrawal {
  /// A bit for each stream. If it is set, the sender has withdrawn the message, and its memory may
  /// have been overwritten. All bits are set when the endpoint is closed.
  std::atomic<std::uint64_t> withdrawn{0};
};

enum class EntryKind : std::uint8_t {
  eager,      ///< A message, within the entry.
  slotted,    ///< A message, in a slot.
  announce,   ///< Announces stream `id`, a message of `bytes`; its payload is a Location, or a
              ///< DevicePlace if `slot` is kOnDevice.
  fragment,   ///< The next `bytes` of the granted stream `id`, in a slot.
  withdrawn,  ///< The sender has withdrawn stream `id`, and sends no more of it.
  request,  ///< Requests a message of the opposite channel (hold.h). Head::tag and Head::bytes are
            ///< the tag and the mask of the receive; the payload is Credit::holds.
  closed,   ///< The endpoint was closed; streams that are not complete will never be complete.
  nothing,  ///< A device could not copy the message of this entry; the receiver skips it.
};

/// Where an announced message is, if its receiver can read it there.
struct Location {
  enum class Where : std::uint32_t {
    nowhere,  ///< Not readable by the receiver; sent through slots.
    shared,   ///< In memory that the sender shares: offset `at` in `allocation`.
    process,  ///< At the address `at` in the sender's process.
    device,   ///< In the memory of a device, named by a DevicePlace.
  };
  Where where = Where::nowhere;
  std::uint32_t allocation = 0;
  std::uint64_t at = 0;
};

/// Entry::slot of an announcement whose message is in device memory.
inline constexpr std::uint16_t kOnDevice = 1;

inline constexpr std::uint64_t kInlineBytes = 104;
inline constexpr unsigned kSizeBits = 64 - kCheckBits;
static_assert(kLargestMessage < std::uint64_t{1} << kSizeBits);

/// Two cache lines. Up to 40 bytes of payload fit into the first line, next to all other fields.
/// The second line holds payload only, and processors that fetch lines in pairs load it along with
/// the first.
struct alignas(2 * kLine) Entry {
  std::atomic<std::uint32_t> turn{0};  ///< The lap in which the entry was last filled, from 1.
  EntryKind kind = EntryKind::eager;
  std::uint8_t id = 0;
  std::uint16_t slot = 0;
  std::uint64_t size_and_check = 0;  ///< See packed(); for a request, 64 bits of its mask.
  std::uint64_t name = 0;            ///< The lower 64 bits of the tag.
  std::array<std::byte, kInlineBytes> payload{};
};
static_assert(sizeof(Entry) == 2 * kLine && sizeof(Credit) == kLine &&
              sizeof(Withdrawal) == kLine && sizeof(Location) <= kInlineBytes &&
              sizeof(DevicePlace) <= kInlineBytes);

/// The size of a message combined with the check bits of its tag.
constexpr std::uint64_t packed(std::uint64_t bytes, Tag tag) noexcept {
  return bytes | (static_cast<std::uint64_t>(tag >> kNameBits) << kSizeBits);
}

/// A copy of an entry's fields, without the payload. The other process may overwrite an entry at
/// any time, so the fields are copied once, and only the copy is checked and used.
struct Head {
  EntryKind kind;
  std::uint8_t id;
  std::uint16_t slot;
  std::uint64_t bytes;
  Tag tag;
};
inline Head head_of(const Entry& entry) noexcept {
  const std::uint64_t size_and_check = entry.size_and_check;
  Head head{entry.kind, entry.id, entry.slot, size_and_check, entry.name};
  std::atomic_signal_fence(std::memory_order_acq_rel);
  if (head.kind == EntryKind::request) return head;
  head.bytes = size_and_check & kLargestMessage;
  head.tag |= static_cast<Tag>(size_and_check >> kSizeBits) << kNameBits;
  return head;
}
/// A copy of the value in an entry's payload.
template <typename Value>
Value payload_of(const Entry& entry) noexcept {
  static_assert(std::is_trivially_copyable_v<Value> && sizeof(Value) <= kInlineBytes);
  Value value{};
  std::memcpy(&value, entry.payload.data(), sizeof value);
  std::atomic_signal_fence(std::memory_order_acq_rel);
  return value;
}
inline Location location_of(const Entry& announcement, const Head& head) noexcept {
  if (head.slot == kOnDevice) return {.where = Location::Where::device};
  const auto location = payload_of<Location>(announcement);
  return location.where == Location::Where::device ? Location{} : location;
}

inline std::uint64_t holds_of_request(const Entry& request) noexcept {
  return payload_of<std::uint64_t>(request);
}

/// The bit of a stream in the words of a Credit or a Withdrawal.
constexpr std::uint64_t bit_of(std::uint32_t stream) noexcept { return std::uint64_t{1} << stream; }

/// The lap in which entry number `entry` of a ring is filled.
constexpr std::uint32_t turn_of(std::uint64_t entry) noexcept {
  return static_cast<std::uint32_t>(entry / kEntries) + 1;
}

struct Unmap {
  std::uint64_t bytes = 0;
  void operator()(std::byte* memory) const noexcept;
};
/// Mapped memory. The destructor unmaps it.
using Mapping = std::unique_ptr<std::byte, Unmap>;
/// Maps a file for reading, whose descriptor a peer has passed. Fails with `mismatch` if the file
/// can shrink or has fewer than `bytes`.
Result<Mapping> map_of_peer(const UniqueFd& fd, std::uint64_t bytes);

/// Unnamed memory, fully allocated, and mapped for writing in this process. Other processes cannot
/// change its size and, from Linux 5.1 on, cannot write to it.
struct SealedMemory {
  UniqueFd fd;
  Mapping memory;
};
Result<SealedMemory> make_sealed_memory(std::uint64_t bytes);

/// A mapped segment.
class Segment {
 public:
  /// Creates a segment and maps it for writing.
  static Result<Segment> create(const Geometry& geometry, const Nonce& nonce);
  /// Maps a peer's segment for reading. Fails with `mismatch` if the segment does not have this
  /// nonce.
  static Result<Segment> open(UniqueFd fd, const Nonce& nonce);

  int fd() const noexcept { return fd_.get(); }
  const Geometry& geometry() const noexcept { return geometry_; }
  std::uint64_t bytes() const noexcept { return geometry_.bytes(); }
  /// The parts of the segment. Only its owner may write to them.
  Header& header() const noexcept { return *reinterpret_cast<Header*>(memory()); }
  Credit& credit(std::uint32_t channel) const noexcept {
    return reinterpret_cast<Credit*>(memory() + geometry_.credits_offset())[channel];
  }
  Withdrawal& withdrawal(std::uint32_t channel) const noexcept {
    return reinterpret_cast<Withdrawal*>(memory() + geometry_.withdrawals_offset())[channel];
  }
  Entry* ring(std::uint32_t channel) const noexcept {
    return reinterpret_cast<Entry*>(memory() + geometry_.ring_offset(channel));
  }
  std::byte* slot(std::uint32_t slot) const noexcept {
    return memory() + geometry_.slot_offset(slot);
  }
  std::byte* memory() const noexcept { return memory_.get(); }
  /// Keeps the memory mapped after the destruction of this object.
  void leave_mapped() noexcept { [[maybe_unused]] const auto* const left = memory_.release(); }

 private:
  Segment(UniqueFd fd, Mapping memory, const Geometry& geometry) noexcept
      : fd_(std::move(fd)), memory_(std::move(memory)), geometry_(geometry) {}

  UniqueFd fd_;
  Mapping memory_;
  Geometry geometry_;
};

}  // namespace xylem::transport::shm
