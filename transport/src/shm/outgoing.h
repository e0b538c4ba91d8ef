// SPDX-License-Identifier: Apache-2.0
//
// The sending end of a channel. A message of up to 104 bytes travels within its entry; one that
// fits into a slot is copied there; a larger one is announced, and flows through slots once the
// receiver knows where it goes. One that lies where the receiver can read it is announced, too, and
// stays there until the receiver has it.
#pragma once

#include "outcome.h"
#include "shm/cache_choice.h"
#include "shm/owner.h"
#include "shm/segment.h"
#include "shm/slot_pool.h"
#include "shm/want.h"
#include "xylem/transport/transport.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <vector>

namespace xylem::transport::shm {

class Outgoing {
 public:
  /// `channel` of the segment `own`, of which `slots` are. Completions go to `outcomes`.
  Outgoing(std::uint32_t channel,
           const Segment& own,
           SlotPool& slots,
           Outcomes& outcomes,
           const CacheChoice& choice = CacheChoice()) noexcept
      : channel_(channel),
        segment_(&own),
        ring_(own.ring(channel)),
        slots_(&slots),
        outcomes_(&outcomes),
        cache_choice_(choice) {}

  /// The receiver has answered: `credit` says how far it is.
  void open(const Owner& receiver, const Credit& credit) noexcept;

  Posted send(Tag tag,
              const std::byte* data,
              std::uint64_t bytes,
              Operation& operation,
              const Location& location = {});
  /// Up to kInlineBytes, if there is an entry for it now.
  bool send_inline(Tag tag, const std::byte* data, std::uint64_t bytes);
  /// Whether put() would find an entry.
  Room room() noexcept;
  /// Takes back what the receiver has taken; whether there was any.
  bool retire() noexcept;
  /// Entries that the receiver has not taken; none where none will be.
  std::uint32_t unread() noexcept;
  /// The message that stands in a slot, which has one more reader by it. Only where there is room.
  void put(Tag tag, std::uint32_t slot, std::uint64_t bytes);

  /// The receiver awaits such a message; `holds` as of then. Lets one pass.
  void heed(const Want& want, std::uint64_t holds);
  /// Tells the peer what is awaited from it; false where the ring is full.
  bool tell(const Want& want, std::uint64_t holds) noexcept;

  /// Puts into the ring what there is room for, and hears what the receiver has taken. Returns how
  /// much it did.
  unsigned pump();
  bool has_work() const noexcept {
    return !is_flushed() || !withdrawn_.empty() || standing_ == Standing::closing;
  }
  /// Whether all that was sent is in the ring.
  bool is_flushed() const noexcept {
    return cleared_.empty() && numberless_.empty() && queue_.empty() && streams_.empty();
  }

  /// Ends the send of this operation with cancelled; false if it is not on its way here. Its memory
  /// is not read any more.
  bool cancel(const Operation& operation);
  /// Ends what is not in the ring with peer_lost. The receiver is told, if it `has_heard` of the
  /// channel.
  void close(bool has_heard);
  bool is_open() const noexcept { return standing_ == Standing::open; }
  /// Whether slots are still with the receiver; if it has ended, they can be taken back.
  bool has_slots_out() const noexcept;
  void take_back() noexcept { retire_until(next_); }

  const Owner& receiver() const noexcept { return receiver_; }
  CacheChoice& cache_choice() noexcept { return cache_choice_; }

 private:
  static constexpr std::uint32_t kNoSlot = ~0U;

  enum class Standing : std::uint8_t {
    open,
    closing,  ///< The receiver must still be told.
    closed,
  };

  /// A send that is not all in the ring yet.
  struct Sending {
    Operation* operation = nullptr;
    const std::byte* data = nullptr;
    std::uint64_t bytes = 0;
    std::uint64_t sent = 0;
    Tag tag = 0;
    std::uint8_t id = 0;  ///< Of its stream, once announced.
    Location location{};
  };
  using Sendings = std::list<Sending>;

  /// A stream whose send was cancelled. Its number is free once the receiver has no more to do with
  /// it: it has fetched the message, or wants fragments and has been told that none come.
  struct Withdrawn {
    std::uint8_t id = 0;
    bool is_told = false;
  };

  enum class Begun : std::uint8_t {
    well,
    no_room,    ///< In the ring, or no slot.
    no_number,  ///< For its stream.
  };

  bool fits_slot(const Sending& sending) const noexcept;
  bool is_announced(const Sending& sending) const noexcept;
  Begun begin(Sending& sending, bool is_wanted);
  Begun announce(Sending& sending, bool is_wanted);
  bool has_number(const Sending& sending, bool is_wanted) const noexcept;
  bool take_want(Tag tag) noexcept;
  void heed_holds() noexcept;
  void append(Sendings& list, const Sending& sending);
  bool pump_list(Sendings& list, bool is_wanted, unsigned& count);
  void fill(std::byte* slot, const std::byte* data, std::uint64_t bytes) noexcept;
  bool put_slot(EntryKind kind, Sending& sending, std::uint64_t bytes);
  unsigned pump_streams(bool is_gone);
  unsigned pump_queue();
  unsigned pump_withdrawn();
  Entry* next_entry(EntryKind kind, Tag tag, std::uint64_t bytes) noexcept;
  void publish() noexcept;
  void retire_until(std::uint64_t entry) noexcept;
  void withdraw(std::uint64_t streams) noexcept;
  void free_stream(std::uint8_t id) noexcept;
  void lose();
  void end(Sendings& list, Sendings::iterator at);

  std::uint32_t channel_;
  const Segment* segment_;
  Entry* ring_;
  SlotPool* slots_;
  Outcomes* outcomes_;
  Owner receiver_;
  const Credit* credit_ = nullptr;
  Standing standing_ = Standing::open;
  std::uint64_t next_ = 0;     ///< Entry to be filled next.
  std::uint64_t retired_ = 0;  ///< Entries whose slots have come back.
  std::array<std::uint32_t, kEntries> slot_of_{};
  std::uint64_t streams_used_ = 0;       ///< A bit for each id.
  std::uint64_t streams_withdrawn_ = 0;  ///< Withdrawal::withdrawn.
  std::uint64_t granted_ = 0;            ///< Credit::granted, as far as it was followed.
  CacheChoice cache_choice_;
  // Not in the ring yet. Of equal tags the older one is always in an earlier list, or before.
  Sendings cleared_;         ///< Wanted.
  Sendings numberless_;      ///< In wait for the number of a stream. Others may overtake them.
  Sendings queue_;           ///< In order.
  Sendings streams_;         ///< Announced.
  std::uint64_t holds_ = 0;  ///< Credit::holds, as of the last look.
  std::vector<Want> wants_;  ///< Said during this hold, and not met.
  std::vector<Withdrawn> withdrawn_;
  Sendings spare_;
};

}  // namespace xylem::transport::shm
