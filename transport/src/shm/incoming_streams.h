// SPDX-License-Identifier: Apache-2.0
//
// The streams of an incoming channel. A stream is a message that is announced before it arrives. If
// the receiver can read the message in place, it shows the message as a view, or copies it piece by
// piece (fetch()). Any other message arrives in fragments after the receiver has granted the
// stream.
#pragma once

#include "matcher.h"
#include "outcome.h"
#include "shm/owner.h"
#include "shm/peer_memory.h"
#include "shm/segment.h"
#include "xylem/transport/transport.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace xylem::transport::shm {

/// The entry or stream that a View shows, encoded in View::id.
struct ViewPlace {
  std::uint32_t channel = 0;
  bool is_stream = false;
  std::uint32_t number = 0;  ///< The number of an entry in its ring, or of a stream; below 2³¹.
};

constexpr std::uint64_t pack(const ViewPlace& place) noexcept {
  return std::uint64_t{place.channel} << 32 | std::uint64_t{place.is_stream} << 31 | place.number;
}
constexpr ViewPlace unpack(std::uint64_t id) noexcept {
  return {static_cast<std::uint32_t>(id >> 32), (id >> 31 & 1) != 0,
          static_cast<std::uint32_t>(id & 0x7fff'ffff)};
}

class IncomingStreams {
 public:
  /// Makes the streams of the channel `channel`. Grants are written to `credit`; `memory` is the
  /// memory of the sender, and `devices` opens the sender's device memory (null if there are no
  /// devices).
  IncomingStreams(std::uint32_t channel,
                  const Withdrawal& withdrawal,
                  const Owner& sender,
                  PeerMemory& memory,
                  Credit& credit,
                  Matcher& matcher,
                  Outcomes& outcomes,
                  DeviceMemory* devices) noexcept
      : channel_(channel),
        withdrawal_(&withdrawal),
        sender_(sender),
        memory_(&memory),
        credit_(&credit),
        matcher_(&matcher),
        outcomes_(&outcomes),
        devices_(devices) {}

  /// Whether any stream has begun and not ended.
  bool any_open() const noexcept { return open_ > 0; }
  /// Whether fetch() has something to do.
  bool any_fetching() const noexcept { return fetching_ != 0; }

  /// The result of consuming an entry.
  enum class Taken : std::uint8_t {
    ok,
    no_memory,  ///< There is no memory for the message, so the entry stays in the ring.
    never,      ///< Invalid: no sender of this build writes such an entry.
  };
  /// Begins the new stream that an entry announces.
  Taken announce(const Head& head, const Entry& entry);
  /// Consumes a fragment of a stream. False if the stream expects none.
  bool take_fragment(const Head& head, const std::byte* data);
  /// Continues the streams that are read in place; returns their number.
  unsigned fetch();
  /// Begins to transfer the announced stream `id` to the receive that has matched it.
  void match(std::uint8_t id, const Receive& receive);
  /// Drops the announced stream `id`.
  void refuse(std::uint8_t id);
  /// Ends the receive of this operation with cancelled, and does not write to its target
  /// afterwards. False if the operation has matched no stream of this channel.
  bool cancel(const Operation& operation);
  /// Ends stream `id`, which the sender has withdrawn. If a receive has matched the stream, it ends
  /// with cancelled. If a view shows the stream, the view stays until it is released.
  void withdraw(std::uint8_t id);
  /// Ends the view of a stream. False if the sender has withdrawn the message.
  bool release(std::uint8_t id) noexcept;
  /// Ends with peer_lost the receives that have matched a stream, and drops the rest of all
  /// streams.
  void abandon();
  /// Like abandon(), but afterwards any_open() is false. Call this when the sender will send
  /// nothing more.
  void end();

 private:
  struct Stream {
    enum class Use : std::uint8_t {
      free,
      announced,
      matched,  ///< A receive has matched; the message is being fetched, or arrives in fragments.
      dropped,  ///< The rest of the message is discarded.
      viewed,   ///< The message is being read in place through a view.
    };
    Use use = Use::free;
    /// True once request_socket_poll() has been called because the stream's memory is not mapped.
    bool has_looked = false;
    Tag tag = 0;
    std::uint64_t bytes = 0;
    std::uint64_t received = 0;
    Receive receive;
    Location location{};
    DevicePlace place{};  ///< For Location::Where::device.
  };

  static void copy_to_target(const Stream& stream,
                             const std::byte* data,
                             std::uint64_t bytes) noexcept;
  void fetch_piece(std::uint8_t id);
  void show(std::uint8_t id, const std::byte* data);
  bool show_on_device(std::uint8_t id);
  void request_fragments(std::uint8_t id);
  void end_stream(std::uint8_t id) noexcept;
  void end_here(std::uint8_t id) noexcept;
  void end_with(std::uint8_t id, Code code) noexcept;
  bool is_withdrawn(std::uint8_t id) const noexcept;
  Code withdrawal_code() const noexcept;
  /// Grants a stream. `is_fetched` reports to the sender that no fragments are needed; without it,
  /// the sender must send the message in fragments.
  void grant(std::uint8_t id, bool is_fetched) noexcept;

  std::uint32_t channel_;
  const Withdrawal* withdrawal_;
  Owner sender_;
  PeerMemory* memory_;
  Credit* credit_;
  Matcher* matcher_;
  Outcomes* outcomes_;
  DeviceMemory* devices_;
  std::uint64_t granted_ = 0, fetched_ = 0;  ///< The values last stored in `credit_`.
  std::uint64_t fetching_ = 0;               ///< A bit for each stream on which fetch() has work.
  std::uint32_t open_ = 0;
  std::array<Stream, kStreams> streams_;
};

}  // namespace xylem::transport::shm
