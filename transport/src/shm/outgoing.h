// SPDX-License-Identifier: Apache-2.0
//
// Outgoing: the sending end of a channel. A message of up to 104 bytes travels within its entry. A
// longer message that fits into a slot is copied to a slot. An even longer message is announced as
// a stream, and flows through slots after the receiver has granted it. A message that the receiver
// can read in place is announced as well, and stays in place until the receiver has read it. A
// message in device memory stays in place if the receiver's device can access the memory; otherwise
// the sender's device copies the message to the host, in pieces. An entry that such a copy fills is
// published when the copy has ended. Later entries may be filled and published meanwhile, but the
// receiver consumes entries in order.
#pragma once

#include "outcome.h"
#include "shm/cache_choice.h"
#include "shm/hold.h"
#include "shm/outgoing_ring.h"
#include "shm/outgoing_streams.h"
#include "shm/owner.h"
#include "shm/segment.h"
#include "shm/send_queue.h"
#include "shm/slot_pool.h"
#include "xylem/transport/transport.h"
#include "xylem/transport/views.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace xylem::transport::shm {

class Outgoing {
 public:
  /// `own` is this transport's segment, and `slots` manages its slots. Completions are appended to
  /// `outcomes`. `devices` reads device memory; it may be null if no device memory is sent.
  Outgoing(std::uint32_t channel,
           const Segment& own,
           SlotPool& slots,
           Outcomes& outcomes,
           const CacheChoice& choice = CacheChoice(),
           DeviceMemory* devices = nullptr) noexcept
      : slot_bytes_(own.geometry().large_bytes),
        devices_(devices),
        ring_(channel, own, slots),
        streams_(own.withdrawal(channel)),
        queue_(outcomes),
        cache_choice_(choice) {}

  /// Connects the channel to the receiver, which reports its progress in `credit`. Call this when
  /// the receiver has accepted the channel.
  void open(const Owner& receiver, const Credit& credit) noexcept { ring_.open(receiver, credit); }

  Posted send(Tag tag, const Outbound& message, Operation& operation);
  /// Sends a message of up to kInlineBytes if an entry is free now.
  bool send_inline(Tag tag, const std::byte* data, std::uint64_t bytes);
  /// ReserveResult::reserved if put() may be called: an entry is free, and no message must be sent
  /// first.
  ReserveResult room() noexcept;
  /// Reclaims entries and slots that the receiver has consumed. True if any were reclaimed.
  bool retire() noexcept { return ring_.retire(); }
  /// The number of entries that the receiver has not consumed; 0 if it will never consume any.
  std::uint32_t unread() noexcept { return room() == ReserveResult::use_send ? 0 : ring_.unread(); }
  /// Sends the message in `slot`, which may have several readers. Requires that room() has returned
  /// ReserveResult::reserved.
  void put(Tag tag, std::uint32_t slot, std::uint64_t bytes);

  /// What has been sent since the channel was opened.
  const Traffic& traffic() const noexcept { return traffic_; }

  /// Call this when the receiver requests a message (hold.h). `holds` is the receiver's
  /// Credit::holds at that time.
  void on_request(const Request& request, std::uint64_t holds);
  /// Requests a message from the peer; false if the ring is full.
  bool send_request(const Request& request, std::uint64_t holds) noexcept;

  /// Sends as much as there is room for, and processes what the receiver has reported. Returns the
  /// amount of work done.
  unsigned pump();
  bool has_work() const noexcept {
    return !queue_.is_empty() || streams_.has_withdrawn() || standing_ == Standing::closing;
  }
  /// Whether everything that was sent is in the ring.
  bool is_flushed() const noexcept { return queue_.is_empty(); }
  /// Whether a device is copying messages to the host. No descriptor reports the end of a copy, so
  /// call pump() until this is false.
  bool is_copying() const noexcept { return !fillings_.empty(); }

  /// Cancels a send. False if this channel has no such send. If the whole message is already in the
  /// ring, or a device is copying its last bytes there, the send completes normally; otherwise it
  /// ends with cancelled. After the outcome is reported, the message's memory is not accessed.
  bool cancel(const Operation& operation);
  /// Closes the endpoint: sends that are not in the ring end with peer_lost. `hello_was_sent`
  /// states whether a hello was sent to the receiver; if so, the receiver is informed.
  void close(bool hello_was_sent);
  bool is_open() const noexcept { return standing_ == Standing::open; }
  /// Whether unconsumed entries still occupy slots. reclaim_slots() frees these slots; call it
  /// only if the receiver has ended.
  bool has_slots_out() const noexcept { return ring_.has_slots_out(); }
  void reclaim_slots() noexcept {
    if (!is_copying()) ring_.retire_all();
  }

  const Owner& receiver() const noexcept { return ring_.receiver(); }
  CacheChoice& cache_choice() noexcept { return cache_choice_; }

 private:
  enum class Standing : std::uint8_t {
    open,
    closing,  ///< The endpoint is closed, but the receiver has not been informed yet.
    closed,
  };

  /// An entry that a device fills. It is published when the device has finished.
  struct Filling {
    std::uint64_t entry = 0;
    DeviceRead read;
    const Operation* operation = nullptr;
  };

  Begun begin(Sending& sending, bool is_requested);
  Begun announce(Sending& sending);
  Begun put_inline(Sending& sending);
  Begun put_slot(EntryKind kind, Sending& sending, std::uint64_t bytes);
  bool fill(std::byte* target, Sending& sending, std::uint64_t bytes);
  unsigned pump_copies();
  void copy_ended(const Operation& operation, bool has_failed);
  unsigned pump_streams(bool has_ended);
  Begun send_fragments(Sending& sending, unsigned& count);
  unsigned pump_queue();
  void end_stream(SendQueue::Position at);
  void withdraw(SendQueue::Position at, Code code);

  std::uint64_t slot_bytes_;  ///< Longer messages are announced.
  DeviceMemory* devices_;
  OutgoingRing ring_;
  OutgoingStreams streams_;
  SendQueue queue_;
  CacheChoice cache_choice_;
  Traffic traffic_;
  Standing standing_ = Standing::open;
  std::vector<Filling> fillings_;  ///< In the order of their entries.
};

}  // namespace xylem::transport::shm
