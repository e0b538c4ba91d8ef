// SPDX-License-Identifier: Apache-2.0
//
// Incoming: the receiving end of a channel. Consumes the entries of the sender's ring: matches
// their messages with receives, or shows the messages in place as views.
#pragma once

#include "matcher.h"
#include "outcome.h"
#include "shm/hold.h"
#include "shm/incoming_streams.h"
#include "shm/owner.h"
#include "shm/peer_memory.h"
#include "shm/segment.h"
#include "xylem/transport/transport.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace xylem::transport::shm {

class Incoming {
 public:
  /// Reads the ring `their_channel` of the segment `theirs`, and reports its progress in `credit`.
  Incoming(std::uint32_t channel,
           const Segment& theirs,
           std::uint32_t their_channel,
           const Owner& sender,
           PeerMemory& memory,
           Credit& credit,
           Matcher& matcher,
           Outcomes& outcomes,
           std::vector<PeerRequest>& requests,
           DeviceMemory* devices = nullptr) noexcept
      : channel_(channel),
        segment_(&theirs),
        ring_(theirs.ring(their_channel)),
        sender_(sender),
        credit_(&credit),
        matcher_(&matcher),
        outcomes_(&outcomes),
        requests_(&requests),
        streams_(channel,
                 theirs.withdrawal(their_channel),
                 sender,
                 memory,
                 credit,
                 matcher,
                 outcomes,
                 devices) {}

  bool has_entry() const noexcept;
  /// Whether drain() has work even if the ring has no entry.
  bool is_fetching() const noexcept { return streams_.any_fetching(); }
  /// Reports all consumed entries to the sender. drain() reports some entries only after several
  /// calls that find nothing, so call report_consumed() before sleeping.
  void report_consumed() noexcept {
    if (unreported_ > 0) report();
  }
  /// Consumes the entries that have arrived, and returns the amount of work done. Appends the
  /// sender's requests (hold.h) to the constructor's `requests`.
  unsigned drain();
  /// Whether the weight of the kept messages requires that the channel be on hold (hold.h).
  bool is_hold_due() const noexcept {
    return matcher_->kept(channel_) > (is_hold(holds_) ? kMostKept / 2 : kMostKept);
  }
  /// Starts a hold of the channel (hold.h), or ends it.
  void toggle_hold() noexcept;
  /// The value of Credit::holds for this channel.
  std::uint64_t holds() const noexcept { return holds_; }
  /// Shows the next entry as a view, if it is a message with this tag and size. Otherwise false.
  bool take_view(Tag tag, std::uint64_t bytes, View& view) noexcept;
  /// Ends a view of this channel. False if the sender has withdrawn the viewed message.
  bool release(const ViewPlace& place) noexcept;
  /// Begins to transfer the announced stream `id` to the receive that has matched it.
  void match(std::uint8_t id, const Receive& receive) { streams_.match(id, receive); }
  /// Drops the announced stream `id`.
  void refuse(std::uint8_t id) { streams_.refuse(id); }
  /// Ends the receive of this operation, if it has matched a stream of this channel.
  bool cancel(const Operation& operation) { return streams_.cancel(operation); }
  /// Ends with peer_lost the receives that have matched a stream, and drops the rest of all
  /// streams.
  void abandon() { streams_.abandon(); }

 private:
  using Taken = IncomingStreams::Taken;

  bool is_sound(const Head& head) const noexcept;
  /// Consumes the next entry. False if the entry must stay in the ring.
  bool take_next();
  Taken take(const Head& head, const Entry& entry);
  bool take_message(const Head& head, const std::byte* data);
  View show(const std::byte* data) noexcept;
  void report() noexcept;
  /// Counts an entry that has been consumed. Reports it to the sender at once if it frees a slot of
  /// a scarce size. Other entries are reported together, since each report costs both sides a cache
  /// miss.
  void note_consumed(const Head& head) noexcept;
  /// Ends the channel and its streams. Call this when the sender will send nothing more.
  void end();

  std::uint32_t channel_;
  const Segment* segment_;
  const Entry* ring_;
  Owner sender_;
  Credit* credit_;
  Matcher* matcher_;
  Outcomes* outcomes_;
  std::vector<PeerRequest>* requests_;
  IncomingStreams streams_;
  std::uint64_t next_ = 0;      ///< Number of the entry to be consumed next.
  std::uint64_t consumed_ = 0;  ///< The value last reported to the sender.
  std::uint64_t viewed_ = 0;    ///< A bit for each entry of the ring that a view shows.
  /// Weight of what was consumed since the last report(): 1 for an entry without a slot, 4 for one
  /// with a slot, 16 for one with a scarce slot.
  std::uint32_t unreported_ = 0;
  std::uint32_t idle_drains_ = 0;
  /// The current drain() has consumed an announcement of a message in device memory.
  bool has_device_message_ = false;
  std::uint64_t holds_ = 0;
  bool is_ended_ = false;
};

static_assert(kEntries == 64, "viewed_ has a bit for each");

/// Copies a message to the target of its receive. Returns the outcome of the receive.
Outcome copy_out(const Receive& receive, Tag tag, const std::byte* data, std::uint64_t bytes);

}  // namespace xylem::transport::shm
