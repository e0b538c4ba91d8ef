// SPDX-License-Identifier: Apache-2.0
//
// Outgoing: the sending end of a channel. A message of up to 104 bytes travels within its entry. A
// longer message that fits into a slot is copied there. An even longer message is announced as a
// stream, and flows through slots after the receiver has granted it. A message that the receiver
// can read in place is announced as well, and stays in place until the receiver has read it. A
// message in device memory stays in place if the receiver's device reaches it; otherwise its device
// copies it to the host, in pieces. An entry that such a copy fills is published when the copy has
// ended. Later entries may be filled and published meanwhile, but the receiver takes them in order.
#pragma once

#include "outcome.h"
#include "shm/cache_choice.h"
#include "shm/owner.h"
#include "shm/segment.h"
#include "shm/slot_pool.h"
#include "shm/want.h"
#include "xylem/transport/transport.h"
#include "xylem/transport/views.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <vector>

namespace xylem::transport::shm {

/// A message that is to be sent.
struct Outbound {
  const std::byte* data = nullptr;
  std::uint64_t bytes = 0;
  Memory memory{};      ///< The kind of memory that `data` is in.
  Location location{};  ///< Where the receiver may be able to read it.
  DevicePlace place{};  ///< For Location::Where::device.
};

class Outgoing {
 public:
  /// The channel `channel` of our own segment `own`, whose slots `slots` manages. Completions are
  /// appended to `outcomes`. `devices` reads device memory, if any is sent.
  Outgoing(std::uint32_t channel,
           const Segment& own,
           SlotPool& slots,
           Outcomes& outcomes,
           const CacheChoice& choice = CacheChoice(),
           DeviceMemory* devices = nullptr) noexcept
      : channel_(channel),
        segment_(&own),
        ring_(own.ring(channel)),
        slots_(&slots),
        outcomes_(&outcomes),
        devices_(devices),
        cache_choice_(choice) {}

  /// Connects the channel to the receiver, which reports its progress in `credit`. Call this when
  /// the receiver has answered.
  void open(const Owner& receiver, const Credit& credit) noexcept;

  Posted send(Tag tag, const Outbound& message, Operation& operation);
  /// Sends a message of up to kInlineBytes if an entry is free now.
  bool send_inline(Tag tag, const std::byte* data, std::uint64_t bytes);
  /// Whether put() would find a free entry.
  Room room() noexcept;
  /// Reclaims entries and slots that the receiver has taken. True if there were any.
  bool retire() noexcept;
  /// The number of entries that the receiver has not taken; 0 if it will never take any.
  std::uint32_t unread() noexcept;
  /// Sends the message in `slot`, which may have several readers. Requires room().
  void put(Tag tag, std::uint32_t slot, std::uint64_t bytes);

  /// Call this when the receiver waits for a message like `want` (want.h). `holds` is the
  /// receiver's Credit::holds at that time. Lets one such message pass.
  void heed(const Want& want, std::uint64_t holds);
  /// Tells the peer what is wanted from it; false if the ring is full.
  bool tell(const Want& want, std::uint64_t holds) noexcept;

  /// Sends as much as there is room for, and processes what the receiver has reported. Returns how
  /// much it did.
  unsigned pump();
  bool has_work() const noexcept {
    return !is_flushed() || !withdrawn_.empty() || standing_ == Standing::closing;
  }
  /// Whether everything that was sent is in the ring.
  bool is_flushed() const noexcept {
    return cleared_.empty() && numberless_.empty() && queue_.empty() && streams_.empty() &&
           copied_.empty();
  }
  /// Whether a device is copying messages to the host. Its end wakes nobody: call pump().
  bool is_copying() const noexcept { return !fillings_.empty(); }

  /// Ends the send of this operation, with cancelled unless all of it is in the ring; false if it
  /// is not in flight here. Its memory is not accessed any more when its outcome is known.
  bool cancel(const Operation& operation);
  /// Ends sends that are not in the ring with peer_lost. Tells the receiver, if it `has_heard` of
  /// the channel.
  void close(bool has_heard);
  bool is_open() const noexcept { return standing_ == Standing::open; }
  /// Whether the receiver still has slots. take_back() reclaims them if the receiver has ended.
  bool has_slots_out() const noexcept;
  void take_back() noexcept {
    if (!is_copying()) retire_until(next_);
  }

  const Owner& receiver() const noexcept { return receiver_; }
  CacheChoice& cache_choice() noexcept { return cache_choice_; }

 private:
  static constexpr std::uint32_t kNoSlot = ~0U;

  enum class Standing : std::uint8_t {
    open,
    closing,  ///< The endpoint is closed, but the receiver must still be told.
    closed,
  };

  /// A send that is not completely in the ring yet.
  struct Sending {
    Operation* operation = nullptr;
    Outbound message;
    std::uint64_t sent = 0;
    Tag tag = 0;
    std::uint8_t id = 0;       ///< The number of its stream, once announced.
    std::uint32_t copies = 0;  ///< How many of its pieces a device is copying.
    Code code = Code::ok;      ///< With which it ends when these have ended, in `copied_`.
  };
  using Sendings = std::list<Sending>;

  /// An entry that a device fills. It is published when the device has done so.
  struct Filling {
    std::uint64_t entry = 0;
    DeviceRead read;
    const Operation* operation = nullptr;
  };

  /// A stream whose send was cancelled. Its number becomes free when the receiver has finished with
  /// the stream: either it has fetched the message, or it has granted fragments and has been told
  /// that none will come.
  struct Withdrawn {
    std::uint8_t id = 0;
    bool is_told = false;
  };

  enum class Begun : std::uint8_t {
    well,
    no_room,    ///< There is no free entry in the ring, or no free slot.
    no_number,  ///< There is no free stream number.
    failed,     ///< The device memory that holds the message cannot be read.
  };

  bool fits_slot(const Sending& sending) const noexcept;
  bool is_announced(const Sending& sending) const noexcept;
  bool put_inline(Tag tag, const std::byte* data, std::uint64_t bytes) noexcept;
  Begun put_inline(Sending& sending);
  Begun begin(Sending& sending, bool is_wanted);
  Begun announce(Sending& sending, bool is_wanted);
  bool has_number(const Sending& sending, bool is_wanted) const noexcept;
  bool take_want(Tag tag) noexcept;
  void heed_holds() noexcept;
  void append(Sendings& list, const Sending& sending);
  bool pump_list(Sendings& list, bool is_wanted, unsigned& count);
  bool fill(std::byte* target, Sending& sending, std::uint64_t bytes);
  Begun put_slot(EntryKind kind, Sending& sending, std::uint64_t bytes);
  unsigned pump_copies();
  void copy_ended(const Operation& operation, bool has_failed);
  unsigned pump_streams(bool is_gone);
  unsigned pump_queue();
  unsigned pump_withdrawn();
  Entry* next_entry(EntryKind kind, Tag tag, std::uint64_t bytes) noexcept;
  void publish() noexcept;
  void publish(std::uint64_t number) noexcept;
  void publish_filled() noexcept;
  void retire_until(std::uint64_t entry) noexcept;
  void withdraw(std::uint64_t streams) noexcept;
  void free_stream(std::uint8_t id) noexcept;
  void lose();
  void end(Sendings& list, Sendings::iterator at, Code code = Code::ok);
  void end_stream(Sendings::iterator at);
  void withdraw_one(Sendings::iterator at, Code code);

  std::uint32_t channel_;
  const Segment* segment_;
  Entry* ring_;
  SlotPool* slots_;
  Outcomes* outcomes_;
  DeviceMemory* devices_;
  Owner receiver_;
  const Credit* credit_ = nullptr;
  Standing standing_ = Standing::open;
  std::uint64_t next_ = 0;     ///< Index of the entry to be filled next.
  std::uint64_t retired_ = 0;  ///< Number of entries whose slots have been reclaimed.
  std::array<std::uint32_t, kEntries> slot_of_{};
  std::uint64_t streams_used_ = 0;       ///< A bit for each stream number.
  std::uint64_t streams_withdrawn_ = 0;  ///< The value of Withdrawal::withdrawn.
  std::uint64_t granted_ = 0;            ///< Credit::granted, as far as it has been processed.
  CacheChoice cache_choice_;
  // Messages that are not in the ring yet. Of two messages with equal tags, the older message is in
  // an earlier list, or earlier in the same list.
  Sendings cleared_;  ///< Messages that are wanted under a hold (want.h).
  /// Messages that wait for a stream number. Other messages may overtake them.
  Sendings numberless_;
  Sendings queue_;    ///< All other messages, in order.
  Sendings streams_;  ///< Messages that are announced.
  Sendings copied_;   ///< Messages that end when a device has copied their last pieces.
  std::vector<Filling> fillings_;  ///< In the order of their entries.
  std::uint64_t holds_ = 0;        ///< Credit::holds at the last look.
  /// Wants that were received during this hold, and are not satisfied yet.
  std::vector<Want> wants_;
  std::vector<Withdrawn> withdrawn_;
  Sendings spare_;
};

}  // namespace xylem::transport::shm
