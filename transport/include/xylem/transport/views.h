// SPDX-License-Identifier: Apache-2.0
//
// Views: an interface of transports with memory that peers map. Messages are written into that
// memory and read there, without a copy at either end.
#pragma once

#include "xylem/base/copy.h"
#include "xylem/transport/transport.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace xylem::transport {

/// Outcome of reserve().
enum class ReserveResult : std::uint8_t {
  reserved,
  retry_later,  ///< No room now; ask again after peers have received some messages.
  use_send,     ///< The endpoint cannot send the message this way: call send(), which also reports
                ///< errors.
};

/// Memory for one message, as reserve() provides it.
struct Reservation {
  std::byte* memory = nullptr;
  /// True if this memory is better written with non-temporal stores (copy.h), since the readers
  /// share no cache with this core.
  bool non_temporal = false;
};

/// Messages in the transport's own memory. A view occupies memory of its sender, and later messages
/// from that sender may wait until the view is released. So a caller that keeps a view while it
/// waits for other ranks must be prepared to release it.
///
/// Belongs to its transport, lives as long, and has the same rules about threads. The messages are
/// those of send() and recv(): if one end uses Views, the other may use send() or recv().
class Views {
 public:
  /// Messages up to this size can be reserved and viewed. Constant, and more than 0.
  virtual std::uint64_t view_bytes() const noexcept = 0;

  /// Like recv() with an exact tag, but leaves the message where it is if it can be read there;
  /// `operation.view` then shows it until release(). Messages of up to view_bytes() can be viewed
  /// unless they are copied from the sender's process; longer messages can be viewed only if they
  /// are in memory that this process maps. Other messages are copied to `target`.
  ///
  /// `reader` says who reads the view: the device of this memory or, by default, the CPU. For a
  /// device, only messages in device memory that it reaches can be viewed; these may have any
  /// length.
  virtual Posted recv_view(Tag tag,
                           Region target,
                           Operation& operation,
                           Memory reader = {}) noexcept = 0;
  /// Takes the next message from the peer of an endpoint if it is already here and has this tag and
  /// this size (at most view_bytes(); kAnySize: any). Faster than recv_view() for a message that is
  /// about to arrive. Receives already posted for the tag are not considered. False if there is no
  /// message, or if the next one is another. The wanted message may arrive later, or may be queued
  /// already: call recv_view().
  virtual bool take_view(EndpointId from, Tag tag, std::uint64_t bytes, View& view) noexcept = 0;
  /// Ends a view. False if the sender withdrew the message, so that the bytes read may have changed
  /// in the meantime.
  virtual bool release(const View& view) noexcept = 0;

  /// Provides memory for one message of `bytes` (at most view_bytes()) to all of `to`. Write the
  /// message there, or call fill(); then commit() it to each of them, or abandon() it, before any
  /// other call except release(). The written bytes may be read back until the next call.
  virtual ReserveResult reserve(std::span<const EndpointId> to,
                                std::uint64_t bytes,
                                Reservation& reservation) noexcept = 0;
  /// Copies the message from `data` into the reserved memory in the fastest way, and also to `also`
  /// if that has memory, as copy_to_both() does.
  virtual void fill(const void* data, CopyTarget also) noexcept = 0;
  virtual void commit(EndpointId to, Tag tag) noexcept = 0;
  virtual void abandon() noexcept = 0;
  /// The number of messages to the endpoint that its peer has not consumed yet.
  virtual std::uint32_t unread(EndpointId to) noexcept = 0;

  /// Whether peers can read this source in place: sending it copies nothing, and completes when the
  /// receiver has read it.
  virtual bool is_readable(const ConstRegion& source) noexcept = 0;
  /// From now on, receivers copy messages of at least `bytes` that were sent with InPlace::anywhere
  /// directly from this process, if the system permits that. kAnySize: never.
  virtual void pull_from(std::uint64_t bytes) noexcept = 0;

 protected:
  ~Views() = default;
};

}  // namespace xylem::transport
