// SPDX-License-Identifier: Apache-2.0
//
// The receiving end of a channel: takes entries out of the sender's ring and lets them meet
// receives. Messages that stay where they lie are read there, or fetched from there piece by piece.
#pragma once

#include "shm/matcher.h"
#include "shm/outcome.h"
#include "shm/owner.h"
#include "shm/peer_memory.h"
#include "shm/segment.h"
#include "xylem/transport/transport.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace xylem::transport::shm {

class Incoming {
 public:
  /// Reads the ring `their_channel` of the segment `theirs`, and says in `credit` how far it is.
  Incoming(std::uint32_t channel,
           const Segment& theirs,
           std::uint32_t their_channel,
           const Owner& sender,
           PeerMemory& memory,
           Credit& credit,
           Matcher& matcher,
           Outcomes& outcomes) noexcept
      : channel_(channel),
        segment_(&theirs),
        ring_(theirs.ring(their_channel)),
        withdrawal_(&theirs.withdrawal(their_channel)),
        sender_(sender),
        memory_(&memory),
        credit_(&credit),
        matcher_(&matcher),
        outcomes_(&outcomes) {}

  bool has_entry() const noexcept;
  /// Whether drain() has something to do even without one.
  bool is_fetching() const noexcept { return fetching_ != 0; }
  /// Tells the sender what it has not been told yet. drain() does it after a while with nothing to
  /// take; call before a sleep.
  void settle() noexcept {
    if (untold_ > 0) publish();
  }
  /// Takes what there is; returns how much it did.
  unsigned drain();
  /// The next entry, if it is a message of this tag and size.
  bool take_view(Tag tag, std::uint64_t bytes, View& view) noexcept;
  /// Ends the view of this place: of an entry of the ring, or, after these, of a stream. False if
  /// the sender has withdrawn what was looked at.
  bool release(std::uint32_t place) noexcept;
  /// The announced stream `id` goes to this receive.
  void meet(std::uint8_t id, const Receive& receive);
  /// The announced stream `id` goes nowhere.
  void refuse(std::uint8_t id);
  /// Receives that have met a stream end with peer_lost; what still comes of streams is dropped.
  void give_up();

 private:
  struct Stream {
    enum class Use : std::uint8_t {
      free,
      announced,
      met,      ///< Its message is fetched, or comes through slots.
      dropped,  ///< What comes is for nobody.
      viewed,   ///< Its message is looked at where it lies.
    };
    Use use = Use::free;
    bool has_looked = false;  ///< For its memory at the door.
    Tag tag = 0;
    std::uint64_t bytes = 0;
    std::uint64_t received = 0;
    Receive receive;
    Location location{};
  };

  bool is_sound(const Entry& entry) const noexcept;
  void take(const Entry& entry);
  void take_message(const Entry& entry, const std::byte* data);
  const std::byte* data_of(const Entry& entry) const noexcept;
  View show(const std::byte* data) noexcept;
  bool take_announcement(const Entry& entry);
  bool take_fragment(const Entry& entry, const std::byte* data);
  static void bring(const Stream& stream, const std::byte* data, std::uint64_t bytes) noexcept;
  unsigned fetch_pieces();
  void fetch(std::uint8_t id);
  void take_through_slots(std::uint8_t id);
  void end_stream(std::uint8_t id) noexcept;
  void end_here(std::uint8_t id) noexcept;
  void end_with(std::uint8_t id, Code code) noexcept;
  bool is_withdrawn() const noexcept;
  /// The sender has no more to do for it if it `is_fetched`; else fragments are to come.
  void grant(std::uint8_t id, bool is_fetched) noexcept;
  void publish() noexcept;
  /// The sender is told at once of large slots, of which it has few; of the rest now and then,
  /// since each time costs both sides a miss.
  void note_taken(const Entry& entry) noexcept;
  /// The sender sends nothing more.
  void end();

  std::uint32_t channel_;
  const Segment* segment_;
  const Entry* ring_;
  const Withdrawal* withdrawal_;
  Owner sender_;
  PeerMemory* memory_;
  Credit* credit_;
  Matcher* matcher_;
  Outcomes* outcomes_;
  std::uint64_t next_ = 0;      ///< Entry to be taken next.
  std::uint64_t consumed_ = 0;  ///< As the sender knows it.
  std::uint64_t viewed_ = 0;    ///< A bit for each place of the ring that is looked at.
  std::uint64_t granted_ = 0, granted_told_ = 0, fetched_ = 0;
  std::uint64_t fetching_ = 0;  ///< A bit for each stream that fetch() has work with.
  std::uint32_t untold_ =
      0;  ///< Since publish(): 1 for an entry, 4 for a slot, 16 for a large one.
  std::uint32_t idle_drains_ = 0;
  std::uint32_t open_streams_ = 0;
  bool is_ended_ = false;
  std::array<Stream, kStreams> streams_;
};

static_assert(kEntries == 64, "viewed_ has a bit for each");

/// Of a View::id.
struct ViewPlace {
  std::uint32_t channel = 0, place = 0;
};
constexpr std::uint64_t pack(const ViewPlace& view) noexcept {
  return std::uint64_t{view.channel} << 32 | view.place;
}
constexpr ViewPlace unpack(std::uint64_t id) noexcept {
  return {static_cast<std::uint32_t>(id >> 32), static_cast<std::uint32_t>(id)};
}

/// Ends a receive with this message.
Outcome copy_out(const Receive& receive, Tag tag, const std::byte* data, std::uint64_t bytes);

}  // namespace xylem::transport::shm
