// SPDX-License-Identifier: Apache-2.0
//
// Views: an interface of transports with memory that peers map. Messages are written into this
// memory and read in place, without a copy at either end.
#pragma once

#include "xylem/base/copy.h"
#include "xylem/transport/transport.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace xylem::transport {

/// A message that is longer than Views::view_bytes() is announced, and stays with its sender until
/// it has been read. At most this number of them to one peer are announced at a time; the others
/// wait.
inline constexpr std::uint32_t kMostAnnounced = 16;

/// The result of reserve().
enum class ReserveResult : std::uint8_t {
  reserved,
  retry_later,  ///< No memory is free. Call reserve() again after peers have received some
                ///< messages.
  use_send,  ///< This message cannot be reserved for this endpoint. Call send(), which also reports
             ///< errors.
};

/// Memory for one message, as reserve() provides it.
struct Reservation {
  std::byte* memory = nullptr;
  /// True if non-temporal stores (copy.h) are faster for this memory, since the readers share no
  /// cache with this core.
  bool non_temporal = false;
};

/// Sends and receives messages in place. A view occupies memory of its sender, and later messages
/// from this sender may wait until the view is released. So a caller that keeps a view while it
/// waits for other ranks must be able to release the view, or the ranks may wait for each other
/// forever.
///
/// Belongs to its transport, lives as long, and has the same rules about threads. The messages are
/// ordinary messages: if one end uses Views, the other end may use send() or recv().
class Views {
 public:
  /// Messages up to this size can be reserved and viewed. Constant, and more than 0.
  virtual std::uint64_t view_bytes() const noexcept = 0;

  /// Like recv() with an exact tag, but the message stays in place if the reader can read it there.
  /// `operation.view` then shows the message until release(). A message of up to view_bytes() can
  /// be viewed, unless it must be copied from the sender's process. A longer message can be viewed
  /// only if it is in memory that this process maps. All other messages are copied to `target`.
  ///
  /// `reader` states who reads the view: the device of this memory or, by default, the CPU. A
  /// device can view only messages in device memory that it can access; they may have any length.
  virtual Posted recv_view(Tag tag,
                           Region target,
                           Operation& operation,
                           Memory reader = {}) noexcept = 0;
  /// Receives the next message from an endpoint's peer as a view, if it has arrived and has this
  /// tag and this size (kAnySize: any size up to view_bytes()). Faster than recv_view() for a
  /// message that is about to arrive. Ignores receives that are posted for the tag. Returns false
  /// if no message has arrived, or if the next message has another tag or size. The wanted message
  /// may then arrive later, or may be stored already: call recv_view().
  virtual bool take_view(EndpointId from, Tag tag, std::uint64_t bytes, View& view) noexcept = 0;
  /// Ends a view. False if the sender has withdrawn the message: the bytes that were read may then
  /// be wrong.
  virtual bool release(const View& view) noexcept = 0;

  /// Provides memory for one message of `bytes` (at most view_bytes()) to all endpoints of `to`.
  /// Write the message to this memory, or call fill(). Then call commit() for each endpoint, or
  /// abandon(). Until then, call no other function of the transport except release(). The written
  /// bytes may be read back until the next call of the transport.
  virtual ReserveResult reserve(std::span<const EndpointId> to,
                                std::uint64_t bytes,
                                Reservation& reservation) noexcept = 0;
  /// Copies the message from `data` to the reserved memory in the fastest way, and also to `also`
  /// if `also.memory` is not null, as copy_to_both() does.
  virtual void fill(const void* data, CopyTarget also) noexcept = 0;
  virtual void commit(EndpointId to, Tag tag) noexcept = 0;
  virtual void abandon() noexcept = 0;
  /// The number of messages that were sent to the endpoint and that its peer has not consumed yet.
  virtual std::uint32_t unread(EndpointId to) noexcept = 0;

  /// Whether peers can read this source in place. If so, sending it copies nothing, and the send
  /// completes when the receiver has read it.
  virtual bool is_readable(const ConstRegion& source) noexcept = 0;
  /// Sets the minimum size of messages that receivers copy directly from this process, if the
  /// system permits it, and if they were sent with InPlace::anywhere. kAnySize disables these
  /// copies.
  virtual void pull_from(std::uint64_t bytes) noexcept = 0;

 protected:
  ~Views() = default;
};

}  // namespace xylem::transport
