// SPDX-License-Identifier: Apache-2.0
//
// A segment: the memory that one transport writes and its peers read.
//
//   header │ credits, one line per incoming channel │ withdrawals, one line per outgoing channel │
//   rings, one per outgoing channel │ slots
//
// A channel leads from one endpoint to its peer. Its ring of entries lies with the sender, the
// credits that say how far the receiver has come with the receiver: so every word has one writer.
//
// Memory order. The sender fills an entry, and the slot that it names, and then stores the entry's
// `turn` with release; the receiver loads it with acquire before it reads them. The receiver reads,
// and then stores `consumed` with release; the sender loads it with acquire before it writes the
// entry or the slot again. `turn` counts laps from 1, so what an earlier lap left is never taken
// for new. Of `state` see Owner::wake().
//
// A message may stay where it lies, in memory that the peer can read besides the segment: it is
// announced with its Location. The receiver has read all of it when `granted` turns, stored with
// release after `fetched`; the sender loads `granted` with acquire before its buffer is its user's
// again. A sender that gives up cannot wait for that: it sets the stream's bit in `withdrawn`, and
// a fence keeps what is written to the buffer behind that store; the receiver's fence keeps its
// look at the bit behind its reads. So who reads what was written later finds out (as the reader of
// a seqlock: Boehm, "Can seqlocks get along with programming language memory models?", MSPC 2012).
// The bit is cleared before the stream's number is announced again, which is after `granted` has
// turned and the receiver has read the bit for the last time.
#pragma once

#include "xylem/base/status.h"
#include "xylem/base/unique_fd.h"
#include "xylem/transport/transport.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

namespace xylem::transport::shm {

inline constexpr std::size_t kLine = 64;
inline constexpr std::uint32_t kEntries = 64;  ///< Of a ring.
/// Announced messages under way on a channel. The first half are those that would fit into a slot,
/// and go there when no number is left, so they hold up nothing; the others wait for a number.
inline constexpr std::uint32_t kStreams = 64;

/// Names a segment, and the socket at which its owner hears of others.
using Nonce = std::array<std::uint64_t, 2>;

/// What a segment holds.
struct Geometry {
  std::uint32_t channels = 0;  ///< Outgoing ones, and as many incoming.
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

/// For so many channels in so many bytes; 0: in as many as serve them well.
Result<Geometry> plan_geometry(std::uint32_t channels, std::uint64_t bytes);

enum class OwnerState : std::uint32_t { awake, asleep, gone };

struct alignas(kLine) Header {
  std::uint64_t magic = 0;
  Nonce nonce{};
  Geometry geometry;
  alignas(kLine) std::atomic<OwnerState> state{OwnerState::awake};
};

/// Of an incoming channel: written by the receiver.
struct alignas(kLine) Credit {
  std::atomic<std::uint64_t> consumed{0};  ///< Entries that the sender may use again.
  /// A bit for each stream, which turns when the receiver has found out where its message goes.
  std::atomic<std::uint64_t> granted{0};
  /// A bit for each stream, as of that turn: the receiver has the message, and needs no fragments.
  std::atomic<std::uint64_t> fetched{0};
  /// Odd while the receiver keeps so much for receives that are not posted that it takes only what
  /// it wants (want.h); each change counts one up.
  std::atomic<std::uint64_t> holds{0};
};

/// Of an outgoing channel: written by the sender.
struct alignas(kLine) Withdrawal {
  /// A bit for each stream: its message, where it is still where it lay, may have been written
  /// over. All of them once the endpoint is closed.
  std::atomic<std::uint64_t> withdrawn{0};
};

enum class EntryKind : std::uint8_t {
  eager,      ///< A message, within the entry.
  slotted,    ///< A message, in a slot.
  announce,   ///< A message of `bytes` to come as stream `id`, once granted; its payload is a
              ///< Location.
  fragment,   ///< `bytes` more of stream `id`, in a slot.
  withdrawn,  ///< No more of stream `id` will come.
  want,       ///< To the sender of the opposite channel: its next message that equals `tag` in the
              ///< bits of `bytes` is awaited; its payload is the Credit::holds in which it is.
  closed,     ///< The endpoint was closed; streams that are not complete never will be.
};

/// Where an announced message lies, if its receiver can read it there.
struct Location {
  enum class Where : std::uint32_t {
    nowhere,  ///< It comes through slots.
    shared,   ///< In memory that the sender shares: `at` in `allocation`.
    process,  ///< At the address `at` of the sender's process.
  };
  Where where = Where::nowhere;
  std::uint32_t allocation = 0;
  std::uint64_t at = 0;
};

inline constexpr std::uint64_t kInlineBytes = 104;
inline constexpr unsigned kSizeBits = 64 - kCheckBits;
static_assert(kLargestMessage < std::uint64_t{1} << kSizeBits);

/// Two lines, the second for payload alone: up to 40 bytes travel in the first with all that goes
/// with them, and a processor that fetches lines in pairs brings the second unasked.
struct alignas(2 * kLine) Entry {
  std::atomic<std::uint32_t> turn{0};  ///< Lap in which it was filled last, from 1.
  EntryKind kind = EntryKind::eager;
  std::uint8_t id = 0;
  std::uint16_t slot = 0;
  std::uint64_t size_and_check = 0;  ///< As packed() makes it; of a want 64 bits of its mask.
  std::uint64_t name = 0;            ///< The lower bits of the tag.
  std::array<std::byte, kInlineBytes> payload{};
};
static_assert(sizeof(Entry) == 2 * kLine && sizeof(Credit) == kLine &&
              sizeof(Withdrawal) == kLine && sizeof(Location) <= kInlineBytes);

/// A message's size and the bits of its tag that check it.
constexpr std::uint64_t packed(std::uint64_t bytes, Tag tag) noexcept {
  return bytes | (static_cast<std::uint64_t>(tag >> kNameBits) << kSizeBits);
}

/// What an entry says besides its payload. Another process may write an entry at any time: it is
/// copied once, before it is believed.
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
  if (head.kind == EntryKind::want) return head;
  head.bytes = size_and_check & kLargestMessage;
  head.tag |= static_cast<Tag>(size_and_check >> kSizeBits) << kNameBits;
  return head;
}
inline Location location_of(const Entry& announcement) noexcept {
  Location location;
  std::memcpy(&location, announcement.payload.data(), sizeof location);
  std::atomic_signal_fence(std::memory_order_acq_rel);
  return location;
}

inline std::uint64_t turn_of_want(const Entry& want) noexcept {
  std::uint64_t turn = 0;
  std::memcpy(&turn, want.payload.data(), sizeof turn);
  std::atomic_signal_fence(std::memory_order_acq_rel);
  return turn;
}

/// Of a stream, in the words of a Credit.
constexpr std::uint64_t bit_of(std::uint32_t stream) noexcept { return std::uint64_t{1} << stream; }

/// The lap in which the entry-th entry of a ring is filled.
constexpr std::uint32_t turn_of(std::uint64_t entry) noexcept {
  return static_cast<std::uint32_t>(entry / kEntries) + 1;
}

/// Memory without a name that is there in full, mapped to be written; others can neither write it
/// nor change its size.
struct SealedMemory {
  SealedMemory(UniqueFd descriptor, std::byte* begin, std::uint64_t size) noexcept
      : fd(std::move(descriptor)), memory(begin), bytes(size) {}
  SealedMemory(SealedMemory&& other) noexcept;
  SealedMemory(const SealedMemory&) = delete;
  SealedMemory& operator=(const SealedMemory&) = delete;
  ~SealedMemory();
  /// Leaves the mapping to the caller.
  std::byte* release() noexcept { return std::exchange(memory, nullptr); }

  UniqueFd fd;
  std::byte* memory;
  std::uint64_t bytes;
};
Result<SealedMemory> make_sealed_memory(std::uint64_t bytes);

/// A mapped segment.
class Segment {
 public:
  /// A new one, mapped to be written.
  static Result<Segment> create(const Geometry& geometry, const Nonce& nonce);
  /// Maps another's to be read. Fails with `mismatch` if it is not the one of this nonce.
  static Result<Segment> open(UniqueFd fd, const Nonce& nonce);
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  ~Segment();

  int fd() const noexcept { return fd_.get(); }
  const Geometry& geometry() const noexcept { return geometry_; }
  std::uint64_t bytes() const noexcept { return geometry_.bytes(); }
  /// Only its owner writes what these lead to.
  Header& header() const noexcept { return *reinterpret_cast<Header*>(memory_); }
  Credit& credit(std::uint32_t channel) const noexcept {
    return reinterpret_cast<Credit*>(memory_ + geometry_.credits_offset())[channel];
  }
  Withdrawal& withdrawal(std::uint32_t channel) const noexcept {
    return reinterpret_cast<Withdrawal*>(memory_ + geometry_.withdrawals_offset())[channel];
  }
  Entry* ring(std::uint32_t channel) const noexcept {
    return reinterpret_cast<Entry*>(memory_ + geometry_.ring_offset(channel));
  }
  std::byte* slot(std::uint32_t slot) const noexcept {
    return memory_ + geometry_.slot_offset(slot);
  }

 private:
  Segment(UniqueFd fd, std::byte* memory, const Geometry& geometry) noexcept
      : fd_(std::move(fd)), memory_(memory), geometry_(geometry) {}

  UniqueFd fd_;
  std::byte* memory_ = nullptr;
  Geometry geometry_;
};

}  // namespace xylem::transport::shm
