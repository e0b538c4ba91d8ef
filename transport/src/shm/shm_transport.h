// SPDX-License-Identifier: Apache-2.0
//
// One end of shared memory. A message of up to 40 bytes travels within its entry; one that fits
// into a slot is copied there and, by the receiver, out; a larger one is announced, and flows
// through slots once the receiver knows where it goes.
#pragma once

#include "shm/door.h"
#include "shm/matcher.h"
#include "shm/segment.h"
#include "shm/slot_pool.h"
#include "xylem/base/unique_fd.h"
#include "xylem/transport/shm.h"
#include "xylem/transport/transport.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <vector>

namespace xylem::transport::shm {

class ShmTransport final : public Transport {
 public:
  static Result<std::unique_ptr<Transport>> make(const ShmOptions& options);
  ShmTransport(const ShmTransport&) = delete;
  ShmTransport& operator=(const ShmTransport&) = delete;
  ~ShmTransport() override;

  std::string_view name() const noexcept override { return "shm"; }
  Capabilities capabilities() const noexcept override { return {.inline_bytes = kInlineBytes}; }
  std::span<const std::byte> address() const noexcept override { return address_; }
  Result<EndpointId> connect(std::span<const std::byte> address) override;
  Posted send(EndpointId to, Tag tag, ConstRegion source, Operation& operation) noexcept override;
  Posted recv(
      Tag tag, Tag mask, Region target, Operation& operation, Tag* sender_tag) noexcept override;
  void cancel(Operation& operation) noexcept override;
  std::size_t discard(Tag tag, Tag mask) noexcept override;
  unsigned progress() noexcept override;
  bool flush(EndpointId endpoint) noexcept override;
  Result<bool> arm() noexcept override;
  int wake_fd() const noexcept override { return events_.get(); }
  void close(EndpointId endpoint) noexcept override;
  std::vector<Lane> lanes(EndpointId endpoint) const override;
  std::uint64_t bytes_sent(EndpointId endpoint) const noexcept override;

 private:
  /// Another transport whose segment is mapped here.
  struct Peer {
    Nonce nonce{};
    Segment segment;
    UniqueFd wake;

    OwnerState state() const noexcept {
      return segment.header().state.load(std::memory_order_relaxed);
    }
  };

  /// A send that is not all in the ring yet.
  struct Sending {
    Operation* operation = nullptr;  ///< Null if it has ended: its bytes are in `kept`.
    const std::byte* data = nullptr;
    std::uint64_t bytes = 0;
    std::uint64_t sent = 0;
    Tag tag = 0;
    std::uint8_t id = 0;  ///< Of its stream, once announced.
    std::array<std::byte, kInlineBytes> kept{};
  };

  enum class Standing : std::uint8_t { calling, open, closing, closed };

  /// The sending end of a channel, which has the endpoint's number.
  struct Endpoint {
    Nonce nonce{};
    Standing standing = Standing::calling;
    bool has_called = false;  ///< The hello has left.
    Peer* peer = nullptr;     ///< Null until it has accepted.
    const Credit* credit = nullptr;
    Entry* ring = nullptr;
    std::uint64_t next = 0;     ///< Entry to be filled next.
    std::uint64_t retired = 0;  ///< Entries whose slots have come back.
    std::array<std::uint32_t, kEntries> slots{};
    std::uint32_t streams_used = 0;  ///< A bit for each id.
    std::uint32_t granted = 0;       ///< Credit::granted, as far as it was followed.
    std::list<Sending> queue;        ///< Not in the ring yet, in order.
    std::list<Sending> streams;      ///< Announced.
    std::uint64_t bytes_sent = 0;

    bool has_work() const noexcept {
      return !queue.empty() || !streams.empty() || standing == Standing::closing;
    }
  };

  /// The receiving end of a stream.
  struct Stream {
    enum class Use : std::uint8_t { free, announced, met, dropped };
    Use use = Use::free;
    Tag tag = 0;
    std::uint64_t bytes = 0;
    std::uint64_t received = 0;
    Receive receive;
  };

  /// The receiving end of a channel, whose number is that of its credits.
  struct Incoming {
    Peer* peer = nullptr;
    std::uint32_t channel = 0;        ///< Its own number.
    std::uint32_t their_channel = 0;  ///< The sender's, whose ring it reads.
    bool has_answered = false;        ///< The sender has been told, or is gone.
    const Entry* ring = nullptr;
    std::uint64_t next = 0;
    std::uint32_t granted = 0;
    std::uint32_t open_streams = 0;
    bool is_closed = false;
    std::array<Stream, kStreams> streams;
  };

  /// A completion that is known but not yet told.
  struct Outcome {
    Operation* operation = nullptr;
    Code code = Code::ok;
    std::uint64_t bytes = 0;
  };

  ShmTransport(Segment segment, Door door, UniqueFd wake, UniqueFd events);

  // Introductions.
  void call(EndpointId id);
  void answer_door();
  void answer(Incoming& incoming);
  Peer* peer_of(Visitor& visitor);

  // Sending.
  void retire(EndpointId id) noexcept;
  Entry* next_entry(EndpointId id, EntryKind kind, Tag tag, std::uint64_t bytes);
  static void publish(Endpoint& endpoint) noexcept;
  bool put_slot(EndpointId id, EntryKind kind, Sending& sending, std::uint64_t bytes);
  bool begin(EndpointId id, Sending& sending);
  unsigned pump(EndpointId id);
  void lose(Endpoint& endpoint);

  // Receiving.
  static bool has_entry(const Incoming& incoming) noexcept;
  unsigned drain(Incoming& incoming);
  void publish(Incoming& incoming) noexcept;
  void take(Incoming& incoming, const Entry& entry);
  static void meet(Incoming& incoming, std::uint8_t id, const Receive& receive);
  void add_fragment(Incoming& incoming, const Entry& entry, const std::byte* data);
  void end_streams(Incoming& incoming);
  static Outcome copy_out(const Receive& receive,
                          Tag tag,
                          const std::byte* data,
                          std::uint64_t bytes);

  static void wake(const Peer& peer) noexcept;
  unsigned tell();

  Segment segment_;
  SlotPool slots_;
  Door door_;
  UniqueFd wake_;    ///< eventfd by which peers end a sleep.
  UniqueFd events_;  ///< epoll of it and the door.
  std::array<std::byte, 4 * sizeof(std::uint64_t)> address_{};
  std::deque<Endpoint> endpoints_;
  std::deque<Incoming> incoming_;
  std::list<Peer> peers_;
  Matcher matcher_;
  std::list<Sending> spare_;
  std::vector<Outcome> outcomes_, telling_;
  std::uint32_t calling_ = 0;  ///< Endpoints not accepted, and incoming channels not answered.
  std::uint32_t idle_rounds_ = 0;
  bool is_armed_ = false;
};

}  // namespace xylem::transport::shm
