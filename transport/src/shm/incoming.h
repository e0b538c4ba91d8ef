// SPDX-License-Identifier: Apache-2.0
//
// The receiving end of a channel: takes entries out of the sender's ring and lets them meet
// receives, or shows them where they are.
#pragma once

#include "matcher.h"
#include "outcome.h"
#include "shm/incoming_streams.h"
#include "shm/owner.h"
#include "shm/peer_memory.h"
#include "shm/segment.h"
#include "shm/view_place.h"
#include "shm/want.h"
#include "xylem/transport/transport.h"

#include <cstddef>
#include <cstdint>
#include <vector>

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
           Outcomes& outcomes,
           std::vector<HeardWant>& wants) noexcept
      : channel_(channel),
        segment_(&theirs),
        ring_(theirs.ring(their_channel)),
        sender_(sender),
        credit_(&credit),
        matcher_(&matcher),
        outcomes_(&outcomes),
        wants_(&wants),
        streams_(
            channel, theirs.withdrawal(their_channel), sender, memory, credit, matcher, outcomes) {}

  bool has_entry() const noexcept;
  /// Whether drain() has something to do even without one.
  bool is_fetching() const noexcept { return streams_.any_fetching(); }
  /// Tells the sender what it has not been told yet. drain() does it after a while with nothing to
  /// take; call before a sleep.
  void settle() noexcept {
    if (untold_ > 0) publish();
  }
  /// Takes what there is; returns how much it did. What wants the sender has told goes to the list
  /// of them.
  unsigned drain();
  /// Whether the channel should be held, by what is kept of it.
  bool is_hold_due() const noexcept {
    return matcher_->kept(channel_) > (is_hold(holds_) ? kMostKept / 2 : kMostKept);
  }
  /// Holds it, or lets it go.
  void turn_hold() noexcept;
  /// Credit::holds.
  std::uint64_t holds() const noexcept { return holds_; }
  /// The next entry, if it is a message of this tag and size.
  bool take_view(Tag tag, std::uint64_t bytes, View& view) noexcept;
  /// Ends the view of a place of this channel. False if the sender has withdrawn what was looked
  /// at.
  bool release(const ViewPlace& place) noexcept;
  /// The announced stream `id` goes to this receive.
  void meet(std::uint8_t id, const Receive& receive) { streams_.meet(id, receive); }
  /// The announced stream `id` goes nowhere.
  void refuse(std::uint8_t id) { streams_.refuse(id); }
  /// Ends the receive of this operation, if it has met a stream of this channel.
  bool cancel(const Operation& operation) { return streams_.cancel(operation); }
  /// Receives that have met a stream end with peer_lost; what still comes of streams is dropped.
  void give_up() { streams_.give_up(); }

 private:
  using Taken = IncomingStreams::Taken;

  bool is_sound(const Head& head) const noexcept;
  /// False if it has to stay where it is.
  bool take_next();
  Taken take(const Head& head, const Entry& entry);
  bool take_message(const Head& head, const std::byte* data);
  View show(const std::byte* data) noexcept;
  void publish() noexcept;
  /// The sender is told at once of large slots, of which it has few; of the rest now and then,
  /// since each time costs both sides a miss.
  void note_taken(const Head& head) noexcept;
  /// The sender sends nothing more.
  void end();

  std::uint32_t channel_;
  const Segment* segment_;
  const Entry* ring_;
  Owner sender_;
  Credit* credit_;
  Matcher* matcher_;
  Outcomes* outcomes_;
  std::vector<HeardWant>* wants_;
  IncomingStreams streams_;
  std::uint64_t next_ = 0;      ///< Entry to be taken next.
  std::uint64_t consumed_ = 0;  ///< As the sender knows it.
  std::uint64_t viewed_ = 0;    ///< A bit for each place of the ring that is looked at.
  std::uint32_t untold_ =
      0;  ///< Since publish(): 1 for an entry, 4 for a slot, 16 for a large one.
  std::uint32_t idle_drains_ = 0;
  std::uint64_t holds_ = 0;
  bool is_ended_ = false;
};

static_assert(kEntries == 64, "viewed_ has a bit for each");

/// Ends a receive with this message.
Outcome copy_out(const Receive& receive, Tag tag, const std::byte* data, std::uint64_t bytes);

}  // namespace xylem::transport::shm
