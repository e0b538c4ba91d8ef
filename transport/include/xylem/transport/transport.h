// SPDX-License-Identifier: Apache-2.0
//
// The transport contract: moves tagged messages between two endpoints, and reports what it is able
// to do. A transport has no notion of ranks and collectives. A receive names the exact tag it
// expects, so it can be posted before data arrives and never matches a wrong message.
#pragma once

#include "xylem/base/memory.h"
#include "xylem/base/status.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace xylem::transport {

/// An endpoint: one remote transport of the same kind, as connect() returned it.
using EndpointId = std::uint32_t;
/// Names a message; both ends compute the same tag. Bits 0 to 63 are the name. Bits 64 to 87 are a
/// check: where Capabilities::checks_tags is set, a message matches a receive only if the check is
/// equal, too. Higher bits are unused.
__extension__ using Tag = unsigned __int128;
inline constexpr Tag kExactMatch = ~Tag{0};
inline constexpr unsigned kNameBits = 64, kCheckBits = 24;
/// 1 TiB. A transport stores a message's size in 40 bits, next to the 24 check bits of its tag.
inline constexpr std::uint64_t kLargestMessage = (std::uint64_t{1} << 40) - 1;
/// Stands for the size of a message whose size is not known in advance.
inline constexpr std::uint64_t kAnySize = ~std::uint64_t{0};

/// What a transport is able to do, for the planner and for `xylem info`.
struct Capabilities {
  bool sends_devices = false;      ///< Device memory may be sent.
  bool receives_devices = false;   ///< Messages may be received into device memory.
  std::uint64_t inline_bytes = 0;  ///< Sends up to this size complete at once, while there is room.
  /// True if cancel() ends every operation at once. If false, only a receive that no message has
  /// matched ends at once (see cancel()).
  bool withdraws = false;
  bool checks_tags = false;  ///< Compares all bits of a tag, not only the lower 64.
};

/// Which messages may stay in place, in the sender's memory, until their receiver has read them
/// there. The send of such a message completes after that.
enum class InPlace : std::uint8_t {
  never,  ///< The transport copies the message at the sender, unless it is too long to buffer.
  shared_only,  ///< Messages in memory that peers map.
  /// Any message: a receiver that would copy it in any case may copy it from the sender's process.
  anywhere,
};

/// Bytes to send, and the kind of memory that they are in.
struct ConstRegion {
  const void* data = nullptr;
  std::uint64_t bytes = 0;
  Memory memory{};
  InPlace in_place = InPlace::never;
};
struct Region {
  void* data = nullptr;
  std::uint64_t bytes = 0;
  Memory memory{};
};

/// A received message, at the place in the transport's memory where it arrived (views.h).
struct View {
  const std::byte* data = nullptr;
  std::uint64_t id = 0;     ///< The transport uses this.
  std::uint64_t bytes = 0;  ///< Set by Views::take_view() only.
  /// The sender can withdraw the message while it is viewed; Views::release() returns whether
  /// it did.
  bool may_change = false;
  bool is_on_device = false;  ///< In memory that only the reader's device reaches.
};

/// One message in flight. The caller owns the operation and must not move it until it has
/// completed; the transport allocates nothing per message. For an operation that was `pending`,
/// `done` is called exactly once, from within progress(), cancel() or close(), on the thread that
/// called these; never from send() or recv().
struct Operation {
  void (*done)(Operation& self) noexcept = nullptr;
  /// The result, set before `done`: ok, cancelled (by cancel() or by the sender), peer_lost,
  /// link_lost, mismatch (the message is longer than the region), exhausted or internal.
  Code code = Code::ok;
  std::uint64_t bytes = 0;  ///< Number of bytes received.
  View view;  ///< The message, after Views::recv_view(); no data if the message was copied.
  void* state = nullptr;  ///< The transport uses this.
};

/// Outcome of posting.
enum class Posted : std::uint8_t {
  pending,  ///< `done` will be called.
  done,     ///< Completed at once; `code` and `bytes` are set and `done` is not called.
};

/// Whether two transports that connect to each other have found each other.
enum class Handshake : std::uint8_t {
  waiting,   ///< Call progress().
  complete,  ///< Both have connected to each other, and each has received the other's answer.
  failed,    ///< There is no such peer, or the endpoint was closed.
};

/// One path that the bytes of an endpoint take, as the fabric's library reports it.
struct PhysicalPath {
  std::string transport;  ///< "shm", "cma", "tcp", "rc_mlx5", "loopback".
  std::string device;     ///< "memory", "eth0", "mlx5_0:1".
};

class Connections;
class HostPeers;
class Views;

/// Moves messages for one owner. Only one thread at a time may call it (the holder of the progress
/// token). No call blocks.
class Transport {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  /// Before destruction, every endpoint must be closed and every operation must have completed.
  virtual ~Transport() = default;

  virtual std::string_view name() const noexcept = 0;
  virtual Capabilities capabilities() const noexcept = 0;
  /// The bytes that another transport of this kind passes to connect() to reach this one.
  virtual std::span<const std::byte> address() const noexcept = 0;

  /// Makes an endpoint. The peer may turn out to be unreachable later: operations on the endpoint
  /// then end with peer_lost or link_lost.
  virtual Result<EndpointId> connect(std::span<const std::byte> address) = 0;
  /// Whether this endpoint and its peer have found each other. Transports that learn of a peer only
  /// by messages always return Handshake::complete.
  virtual Handshake handshake(EndpointId /*endpoint*/) const noexcept {
    return Handshake::complete;
  }

  /// Sends `source` under `tag`. Completion means that the memory may be reused, not that the peer
  /// has the message.
  virtual Posted send(EndpointId to,
                      Tag tag,
                      ConstRegion source,
                      Operation& operation) noexcept = 0;
  /// Receives the next message, from any endpoint, whose tag equals `tag` in the bits of `mask`.
  /// Messages with equal tags from one sender match in the order in which they were sent. If
  /// `sender_tag` is given, the message's tag is stored there before completion.
  virtual Posted recv(Tag tag,
                      Tag mask,
                      Region target,
                      Operation& operation,
                      Tag* sender_tag = nullptr) noexcept = 0;

  /// Sends a message of up to inline_bytes if it can be sent completely now; otherwise sends
  /// nothing and returns false.
  virtual bool send_inline(EndpointId /*to*/,
                           Tag /*tag*/,
                           const void* /*data*/,
                           std::uint64_t /*bytes*/) noexcept {
    return false;
  }

  /// The interface for messages that are written and read in place; null if this transport has
  /// none. Every call returns the same pointer.
  virtual Views* views() noexcept { return nullptr; }
  /// The interface to the peers on this host; null if this transport has none. Every call returns
  /// the same pointer.
  virtual HostPeers* host_peers() noexcept { return nullptr; }
  /// The connections of the endpoints, which the owner makes; null if the transport needs none, or
  /// makes them itself. Every call returns the same pointer.
  virtual Connections* connections() noexcept { return nullptr; }

  /// Ends a pending operation with `cancelled`, unless it completes first. `done` is called within
  /// this call or within progress(). After that the transport no longer accesses the operation's
  /// memory. Other messages and the endpoint are not affected.
  ///
  /// If a cancelled receive has already matched its message, the rest of that message is dropped.
  /// If a send is cancelled, the part that the peer does not have yet is withdrawn; a receive that
  /// has matched the message ends with `cancelled`, too.
  ///
  /// Where Capabilities::withdraws is false, all this holds only for receives that no message has
  /// matched. Any other operation continues until its message is complete, or until the endpoint to
  /// the peer fails or is closed. So connect also to peers from which you only receive.
  virtual void cancel(Operation& operation) noexcept = 0;
  /// Drops messages that have arrived, match (tag, mask), and were not matched by a receive. Their
  /// senders' operations complete. Returns the number dropped.
  virtual std::size_t discard(Tag tag, Tag mask) noexcept = 0;

  /// Advances all operations. Returns the number of completions and arrivals that it handled.
  virtual unsigned progress() noexcept = 0;

  /// True once everything sent to the endpoint has left this process. If false, call progress() and
  /// then this again. Once true, the messages arrive even if this transport ends. There is one
  /// exception: over TCP, some messages can be lost if the peer is sending when this transport
  /// ends.
  virtual bool flush(EndpointId endpoint) noexcept = 0;

  /// Prepares to sleep on wake_fd(). True: nothing is ready, and the descriptor becomes readable at
  /// the next event. False: progress() must be called first.
  virtual Result<bool> arm() noexcept = 0;
  /// True if devices are copying messages. No descriptor reports the end of such a copy, so call
  /// progress() often. arm() returns false meanwhile.
  virtual bool waits_for_device() const noexcept { return false; }
  /// Readable when an armed transport has an event. Owned by the transport. -1 if it cannot sleep.
  virtual int wake_fd() const noexcept = 0;

  /// Closes an endpoint at once: its pending sends end with peer_lost and never access their
  /// buffers after that. Returns immediately; progress() completes the sends. Receives do not
  /// belong to an endpoint: cancel them.
  virtual void close(EndpointId endpoint) noexcept = 0;

  /// The paths that an endpoint uses. Empty before the first message if the fabric has not chosen
  /// them yet.
  virtual std::vector<PhysicalPath> paths(EndpointId endpoint) const = 0;
  /// Bytes passed to send() for this endpoint since connect().
  virtual std::uint64_t bytes_sent(EndpointId endpoint) const noexcept = 0;
};

}  // namespace xylem::transport
