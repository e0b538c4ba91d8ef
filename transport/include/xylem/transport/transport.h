// SPDX-License-Identifier: Apache-2.0
//
// The transport contract: moves bytes between two endpoints by tagged messages, and says what it
// can do. It knows no rank and no collective. Tags name messages exactly, so receives can be posted
// before data arrives and a wrong message never matches.
#pragma once

#include "xylem/base/copy.h"
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
/// Names a message. Both ends compute the same one. Bits 64 to 87 are for checks: a message that
/// differs in them does not match either, where the transport has room for them
/// (Capabilities::checks_tags). The bits above are not used.
__extension__ using Tag = unsigned __int128;
inline constexpr Tag kExactMatch = ~Tag{0};
inline constexpr unsigned kNameBits = 64, kCheckBits = 24;
/// 1 TiB: a transport keeps a message's size in 40 bits, beside those that check its tag.
inline constexpr std::uint64_t kLargestMessage = (std::uint64_t{1} << 40) - 1;
/// Of a message whose size is not known before.
inline constexpr std::uint64_t kAnySize = ~std::uint64_t{0};

/// What a transport can do, for the planner and for `xylem info`.
struct Capabilities {
  bool mapped_memory = false;      ///< Peers' memory may be an operand of copy and reduce.
  bool one_sided = false;          ///< put.
  bool cuda = false;               ///< Device memory may be sent and received.
  std::uint64_t inline_bytes = 0;  ///< Sends up to this size complete at once, if there is room.
  /// Messages up to this size can be written and read where they travel: reserve(), recv_view().
  std::uint64_t view_bytes = 0;
  /// cancel() ends every operation at once. If not, one that has met its partner goes on until the
  /// message is through or its endpoint is closed.
  bool withdraws = false;
  bool checks_tags = false;  ///< Compares all bits of a tag, not the lower 64 alone.
};

/// Which messages may stay where they are, and be sent when their receiver has read them there.
enum class Stay : std::uint8_t {
  nowhere,    ///< None, but those that are too long to be kept for a receiver.
  in_shared,  ///< Those in memory that peers map.
  anywhere,   ///< Those, too, that the receiver fetches from the process, to copy them anyway.
};

/// Bytes to read or write, and where they live.
struct ConstRegion {
  const void* data = nullptr;
  std::uint64_t bytes = 0;
  Memory memory{};
  Stay stay = Stay::nowhere;
};
struct Region {
  void* data = nullptr;
  std::uint64_t bytes = 0;
  Memory memory{};
};

/// A message where it has arrived.
struct View {
  const std::byte* data = nullptr;
  std::uint64_t id = 0;     ///< The transport's own.
  std::uint64_t bytes = 0;  ///< Of take_view().
  bool may_change = false;  ///< Its sender can take it back: release() tells whether it did.
};

/// One message in flight. The caller owns it and keeps its address until it has completed; the
/// transport allocates nothing per message of its own. `done` is called exactly once for a message
/// that was `pending`, from within progress(), cancel() or close(), on the thread that called
/// these; never from send() or recv().
struct Operation {
  void (*done)(Operation& self) noexcept = nullptr;
  /// Result, set before `done`: ok, cancelled (here, or withdrawn by its sender), peer_lost,
  /// link_lost, mismatch (longer than the region), exhausted or internal.
  Code code = Code::ok;
  std::uint64_t bytes = 0;  ///< Received bytes.
  View view;                ///< Of recv_view() that ended well; no data if it was copied.
  void* state = nullptr;    ///< The transport's own.
};

/// Outcome of posting.
enum class Posted : std::uint8_t {
  pending,  ///< `done` will be called.
  done,     ///< Completed at once; `code` and `bytes` are set and `done` is not called.
};

/// How far two ends have come in finding each other.
enum class Meeting : std::uint8_t {
  waiting,  ///< Call progress().
  met,      ///< Each has connected to the other and knows that it is heard.
  failed,   ///< Nobody is there, or the endpoint was closed.
};

/// Outcome of reserve().
enum class Room : std::uint8_t {
  given,
  later,  ///< None now, but when peers have taken what was sent to them: ask again.
  never,  ///< An endpoint cannot be used; send() says why.
};

/// Memory for a message, as reserve() gives it.
struct Reservation {
  std::byte* memory = nullptr;
  bool past_cache = false;  ///< Better written past the cache (copy.h): its readers are far away.
};

/// One wire of an endpoint, as the fabric's library reports it.
struct Lane {
  std::string transport;  ///< "shm", "cma", "tcp", "rc_mlx5", "loopback".
  std::string device;     ///< "memory", "eth0", "mlx5_0:1".
};

/// Moves messages for one owner. Calls come from one thread at a time (the holder of the progress
/// token); none blocks.
class Transport {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  /// Every endpoint is closed and every operation completed before.
  virtual ~Transport() = default;

  virtual std::string_view name() const noexcept = 0;
  virtual Capabilities capabilities() const noexcept = 0;
  /// What another transport of this kind needs to connect() to this one.
  virtual std::span<const std::byte> address() const noexcept = 0;

  /// Makes an endpoint. Reaching the peer may still fail later: its operations then end with
  /// peer_lost or link_lost.
  virtual Result<EndpointId> connect(std::span<const std::byte> address) = 0;
  /// Whether two that connect to each other have met. Transports that learn of it by messages alone
  /// say that they have.
  virtual Meeting meeting(EndpointId /*endpoint*/) const noexcept { return Meeting::met; }

  /// Sends `source` under `tag`. Completion means that the source may be reused, not that the peer
  /// has it.
  virtual Posted send(EndpointId to,
                      Tag tag,
                      ConstRegion source,
                      Operation& operation) noexcept = 0;
  /// Receives the next message whose tag equals `tag` in the bits of `mask`, from any endpoint.
  /// Messages with equal tags from one sender match in the order sent. `sender_tag`, if given, gets
  /// the message's tag before completion.
  virtual Posted recv(Tag tag,
                      Tag mask,
                      Region target,
                      Operation& operation,
                      Tag* sender_tag = nullptr) noexcept = 0;

  /// Sends up to inline_bytes if that can be all of it, by now; else nothing, and false.
  virtual bool send_inline(EndpointId to, Tag tag, const void* data, std::uint64_t bytes) noexcept;

  // In place, where `view_bytes` is not 0. A view takes room from its sender, and all that comes
  // after it from there waits for its end: who keeps one while he waits for others must be ready to
  // give it up.

  /// As recv() with an exact tag, but leaves the message where it is, if it can be looked at there:
  /// `operation.view` shows it until release(). One of up to view_bytes can, unless it is fetched
  /// from its sender's process; a longer one only in memory that is mapped. Others go to `target`.
  virtual Posted recv_view(Tag tag, Region target, Operation& operation) noexcept;
  /// Takes the next message from the peer of an endpoint, if it is here and has this tag and size,
  /// no more than view_bytes: quicker than a receive for one that is about to come. It passes by
  /// receives that are posted for the tag. False: it may still come, or have come before;
  /// recv_view() knows.
  virtual bool take_view(EndpointId from, Tag tag, std::uint64_t bytes, View& view) noexcept;
  /// Ends it. False if the sender had closed its endpoint, and what was looked at may have changed
  /// meanwhile.
  virtual bool release(const View& view) noexcept;
  /// Whether peers on this host read such a source where it is: sending it copies nothing, and ends
  /// when its receiver has it.
  virtual bool is_readable(const ConstRegion& source) noexcept;
  /// Messages of so many bytes and more that may stay anywhere are fetched by their receivers from
  /// the sender's process, where they can; kAnySize: none are.
  virtual void pull_from(std::uint64_t bytes) noexcept;
  /// Gives memory for a message of `bytes` (view_bytes at most) to all of `to`. Write it, or
  /// fill() it, then commit() it to each of them, or abandon() it, before any other call but
  /// release(). What was written may be read until the next call.
  virtual Room reserve(std::span<const EndpointId> to,
                       std::uint64_t bytes,
                       Reservation& reservation) noexcept;
  /// Copies the message there from `data`, in the way that is quickest; and to `also`, if it has
  /// memory, as copy_to_both() does.
  virtual void fill(const void* data, CopyTarget also) noexcept;
  virtual void commit(EndpointId to, Tag tag) noexcept;
  virtual void abandon() noexcept;
  /// How many messages to the endpoint its peer has not taken.
  virtual std::uint32_t unread(EndpointId to) noexcept;

  /// Ends a pending operation with `cancelled`, unless it completes first. `done` follows, now or
  /// in progress(), and from then on nobody reads or writes the operation's memory. Other messages
  /// and the endpoint go on.
  ///
  /// A receive may have met its message: what has not come yet is dropped. Of a send, what the peer
  /// does not have yet is withdrawn; a receive that has met it ends with `cancelled`.
  ///
  /// Where Capabilities::withdraws is false, this holds for receives that have met no message.
  /// Others end with their message, or when the endpoint to the peer fails or is closed: so connect
  /// to those you receive from, too.
  virtual void cancel(Operation& operation) noexcept = 0;
  /// Drops messages that have arrived, match (tag, mask) and met no receive; senders waiting for
  /// them are released. Returns how many.
  virtual std::size_t discard(Tag tag, Tag mask) noexcept = 0;

  /// Advances everything; returns the number of completions and arrivals it worked on.
  virtual unsigned progress() noexcept = 0;

  /// True once all that was sent to the endpoint has left this process; false: call progress(), and
  /// ask again. What has left arrives though the transport ends, but for what the end of a TCP
  /// connection takes along if the peer sends at that moment.
  virtual bool flush(EndpointId endpoint) noexcept = 0;

  /// Prepares to sleep on wake_fd(): true if nothing is ready and the descriptor will become
  /// readable on the next event; false if progress() must be called first.
  virtual Result<bool> arm() noexcept = 0;
  /// Readable when an armed transport has an event. Owned by the transport; -1 if it cannot sleep.
  virtual int wake_fd() const noexcept = 0;

  /// Cuts an endpoint now: its pending sends end with peer_lost, and after that never touch their
  /// buffers. Returns at once; progress() finishes. Receives are not the endpoint's: cancel them.
  virtual void close(EndpointId endpoint) noexcept = 0;
  /// Tells of the death of a peer to which there is no endpoint: it may have made one to us.
  virtual void note_death() noexcept {}

  /// The wires an endpoint uses; empty before the first message where the fabric decides late.
  virtual std::vector<Lane> lanes(EndpointId endpoint) const = 0;
  /// Bytes handed to send() for this endpoint since connect().
  virtual std::uint64_t bytes_sent(EndpointId endpoint) const noexcept = 0;
};

}  // namespace xylem::transport
