// SPDX-License-Identifier: Apache-2.0
//
// The interface of all transports. A transport moves tagged messages between endpoints, and reports
// its capabilities. It has no notion of ranks and collectives. A receive states the tag that its
// message must have, so it can be posted before data arrives and never matches a wrong message.
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

/// Identifies an endpoint of a transport. An endpoint leads to one remote transport of the same
/// kind; connect() makes it.
using EndpointId = std::uint32_t;
/// Identifies a message; both ends compute the same tag. Bits 0 to 63 are the name. Bits 64 to 87
/// are check bits: if Capabilities::checks_tags is set, a message matches a receive only if these
/// bits are equal, too; otherwise they are ignored. Higher bits are unused.
__extension__ using Tag = unsigned __int128;
inline constexpr Tag kExactMatch = ~Tag{0};
inline constexpr unsigned kNameBits = 64, kCheckBits = 24;
/// 1 TiB - 1: the shm transport stores a message's size in 40 bits, next to the 24 check bits of
/// its tag.
inline constexpr std::uint64_t kLargestMessage = (std::uint64_t{1} << 40) - 1;
/// Stands for the size of a message whose size is not known in advance.
inline constexpr std::uint64_t kAnySize = ~std::uint64_t{0};

/// What a transport is able to do, for the planner and for `xylem info`.
struct Capabilities {
  bool sends_devices = false;      ///< Device memory may be sent.
  bool receives_devices = false;   ///< Messages may be received into device memory.
  std::uint64_t inline_bytes = 0;  ///< Sends up to this size complete at once, if there is room.
  /// True if cancel() ends every operation at once. If false, only a receive that no message has
  /// matched ends at once (see cancel()).
  bool withdraws = false;
  bool checks_tags = false;  ///< Compares all bits of a tag, not only the lower 64.
};

/// Which messages the receiver may read in place, in the sender's memory, instead of a copy that
/// the sender makes. The send of such a message completes when the receiver has read it.
enum class InPlace : std::uint8_t {
  never,  ///< None. The sender's transport copies the message, unless it is too long to buffer.
  shared_only,  ///< Messages in memory that peers map (shared_memory.h).
  /// Any message. A receiver that needs a copy, not a view, may make it directly from the memory of
  /// the sender's process.
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

/// A received message that is read in place, where it arrived or where the sender left it
/// (views.h).
struct View {
  const std::byte* data = nullptr;
  std::uint64_t id = 0;     ///< Private to the transport.
  std::uint64_t bytes = 0;  ///< Set by Views::take_view() only.
  /// True if the sender can withdraw the message during the view, so that its bytes may change.
  /// Views::release() then returns false.
  bool may_change = false;
  bool is_on_device = false;  ///< True if only the reader's device can access the memory.
};

/// One message in flight. The caller owns the operation and must not move it until it has
/// completed. The transport allocates no memory for it. If send() or recv() returned
/// Posted::pending, `done` is called exactly once: within progress(), cancel() or close(), on the
/// thread that called the function, and never within send() or recv().
struct Operation {
  void (*done)(Operation& self) noexcept = nullptr;
  /// The result, set before `done`: ok, cancelled (by cancel() or by the sender), peer_lost,
  /// link_lost, mismatch (the message is longer than the region), exhausted or internal.
  Code code = Code::ok;
  std::uint64_t bytes = 0;  ///< Number of bytes received.
  View view;  ///< Set by Views::recv_view(); its `data` is null if the message was copied.
  void* state = nullptr;  ///< Private to the transport.
};

/// The result of send() and recv().
enum class Posted : std::uint8_t {
  pending,  ///< The operation is in progress; `done` will be called.
  done,     ///< Completed at once; `code` and `bytes` are set, and `done` is not called.
};

/// The progress of the handshake between two transports that connect to each other.
enum class ConnectState : std::uint8_t {
  waiting,   ///< Not complete yet: call progress().
  complete,  ///< Both transports have connected, and each has accepted the other's connection.
  failed,    ///< The peer does not exist, or the endpoint was closed.
};

/// One path over which an endpoint sends, as the fabric's library reports it.
struct PhysicalPath {
  std::string transport;  ///< "shm", "cma", "tcp", "rc_mlx5", "loopback".
  std::string device;     ///< "memory", "eth0", "mlx5_0:1".
};

class Connections;
class HostPeers;
class Views;

/// What has been sent over an endpoint.
struct Traffic {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  /// Messages that were announced: their bytes stayed in the memory of the sender until the peer
  /// read them there or asked for them.
  std::uint64_t announced = 0;
  /// Bytes of device memory that the transport has copied to the host in order to send them.
  std::uint64_t staged_bytes = 0;

  void count(std::uint64_t message_bytes) noexcept {
    ++messages;
    bytes += message_bytes;
  }
  Traffic& operator+=(const Traffic& other) noexcept {
    messages += other.messages;
    bytes += other.bytes;
    announced += other.announced;
    staged_bytes += other.staged_bytes;
    return *this;
  }
};

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
  /// The address of this transport, which another transport of the same kind passes to connect().
  virtual std::span<const std::byte> address() const noexcept = 0;

  /// Makes an endpoint. Success does not prove that the peer is reachable: if it is not, operations
  /// on the endpoint end with peer_lost or link_lost.
  virtual Result<EndpointId> connect(std::span<const std::byte> address) = 0;
  /// The state of the handshake with this endpoint's peer. A transport without a handshake always
  /// returns ConnectState::complete.
  virtual ConnectState connect_state(EndpointId /*endpoint*/) const noexcept {
    return ConnectState::complete;
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
  /// The interface by which the owner of the transport connects the endpoints; null if the
  /// transport needs no connections, or makes them itself. Every call returns the same pointer.
  virtual Connections* connections() noexcept { return nullptr; }

  /// Ends a pending operation with `cancelled`, unless it completes first. `done` is called within
  /// this call or within progress(); afterwards the transport does not access the operation's
  /// memory. Other messages and the endpoint are not affected.
  ///
  /// If a cancelled receive has matched its message already, the rest of this message is dropped.
  /// If a send is cancelled, the part of the message that the peer does not have yet is withdrawn;
  /// the receive at the peer, if it has matched the message, ends with `cancelled`, too.
  ///
  /// If Capabilities::withdraws is false, cancel() has these effects only on a receive that no
  /// message has matched. Any other operation continues until its message is complete, or until the
  /// endpoint to the peer fails or is closed. So call connect() also for peers from which you only
  /// receive.
  virtual void cancel(Operation& operation) noexcept = 0;
  /// Drops messages that have arrived, match (tag, mask), and were not matched by a receive. Their
  /// senders' operations complete. Returns the number dropped.
  virtual std::size_t discard(Tag tag, Tag mask) noexcept = 0;

  /// Advances all operations. Returns the number of completions and arrivals that it handled.
  virtual unsigned progress() noexcept = 0;

  /// Whether everything sent to the endpoint has left this process. If false, call progress() and
  /// then flush() again. If true, the messages arrive even if this transport ends, with one
  /// exception: over TCP, some messages can be lost if the peer is sending when this transport
  /// ends.
  virtual bool flush(EndpointId endpoint) noexcept = 0;

  /// Prepares to sleep on wake_fd(). Returns true if nothing is ready: the descriptor then becomes
  /// readable at the next event. Returns false if progress() must be called first.
  virtual Result<bool> arm() noexcept = 0;
  /// True if devices are copying messages. No descriptor reports the end of such a copy, so call
  /// progress() often. arm() returns false while this is true.
  virtual bool waits_for_device() const noexcept { return false; }
  /// A descriptor that becomes readable when an armed transport has an event; -1 if the transport
  /// cannot sleep. The transport owns it.
  virtual int wake_fd() const noexcept = 0;

  /// Closes an endpoint without waiting. Its pending sends end with peer_lost, and progress() calls
  /// their `done`; afterwards the transport does not access their buffers. Receives do not belong
  /// to an endpoint: cancel them.
  virtual void close(EndpointId endpoint) noexcept = 0;

  /// The paths that an endpoint uses. Empty if the fabric has not chosen the paths, which it may do
  /// only at the first message.
  virtual std::vector<PhysicalPath> paths(EndpointId endpoint) const = 0;
  /// What has been sent over this endpoint since connect().
  virtual Traffic traffic(EndpointId endpoint) const noexcept = 0;
};

}  // namespace xylem::transport
