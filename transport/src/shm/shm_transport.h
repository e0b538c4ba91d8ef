// SPDX-License-Identifier: Apache-2.0
//
// One end of the shm transport: its segment, the peers that it knows, and one channel in each
// direction for each of them.
#pragma once

#include "matcher.h"
#include "outcome.h"
#include "shm/allocations.h"
#include "shm/door.h"
#include "shm/incoming.h"
#include "shm/outgoing.h"
#include "shm/peer_memory.h"
#include "shm/segment.h"
#include "shm/slot_pool.h"
#include "xylem/base/log.h"
#include "xylem/base/unique_fd.h"
#include "xylem/transport/shm.h"
#include "xylem/transport/transport.h"
#include "xylem/transport/views.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <vector>

namespace xylem::transport::shm {

class ShmTransport final : public Transport, public Views {
 public:
  static Result<std::unique_ptr<Transport>> make(const ShmOptions& options, const Logger& logger);
  ShmTransport(const ShmTransport&) = delete;
  ShmTransport& operator=(const ShmTransport&) = delete;
  ~ShmTransport() override;

  std::string_view name() const noexcept override { return "shm"; }
  Capabilities capabilities() const noexcept override {
    return {.sends_devices = devices_ != nullptr,
            .inline_bytes = kInlineBytes,
            .withdraws = true,
            .checks_tags = true};
  }
  std::span<const std::byte> address() const noexcept override { return address_; }
  Result<EndpointId> connect(std::span<const std::byte> address) override;
  Meeting meeting(EndpointId endpoint) const noexcept override;
  Posted send(EndpointId to, Tag tag, ConstRegion source, Operation& operation) noexcept override;
  bool send_inline(EndpointId to, Tag tag, const void* data, std::uint64_t bytes) noexcept override;
  Posted recv(
      Tag tag, Tag mask, Region target, Operation& operation, Tag* sender_tag) noexcept override;
  Views* views() noexcept override { return this; }
  void cancel(Operation& operation) noexcept override;
  std::size_t discard(Tag tag, Tag mask) noexcept override;
  unsigned progress() noexcept override;
  bool flush(EndpointId endpoint) noexcept override;
  Result<bool> arm() noexcept override;
  int wake_fd() const noexcept override { return events_.get(); }
  bool waits_for_device() const noexcept override;
  void hold_wakes(bool held) noexcept override;
  void show_computing(bool computes) noexcept override;
  bool do_peers_compute() const noexcept override;
  void close(EndpointId endpoint) noexcept override;
  std::vector<Lane> lanes(EndpointId endpoint) const override;
  std::uint64_t bytes_sent(EndpointId endpoint) const noexcept override;

  std::uint64_t view_bytes() const noexcept override { return segment_.geometry().large_bytes; }
  Posted recv_view(Tag tag, Region target, Operation& operation, Memory reader) noexcept override;
  bool take_view(EndpointId from, Tag tag, std::uint64_t bytes, View& view) noexcept override;
  bool release(const View& view) noexcept override;
  bool is_readable(const ConstRegion& source) noexcept override;
  void pull_from(std::uint64_t bytes) noexcept override { pull_from_ = bytes; }
  Room reserve(std::span<const EndpointId> to,
               std::uint64_t bytes,
               Reservation& reservation) noexcept override;
  void fill(const void* data, CopyTarget also) noexcept override;
  void commit(EndpointId to, Tag tag) noexcept override;
  void abandon() noexcept override;
  std::uint32_t unread(EndpointId to) noexcept override { return endpoints_[to].outgoing.unread(); }

 private:
  /// A slot that is being written.
  struct Reserved {
    std::uint32_t slot = 0;
    std::uint64_t bytes = 0;
    std::uint32_t readers = 0;
  };

  /// Another transport. Its segment stays mapped until this transport ends.
  struct Peer {
    Nonce nonce{};
    Segment segment;
    UniqueFd wake;
    PeerMemory memory;
    mutable Wake wake_later{};

    Peer(const Nonce& its_nonce,
         Segment its_segment,
         UniqueFd its_wake,
         bool& wants_look,
         const bool& holds_wakes) noexcept
        : nonce(its_nonce),
          segment(std::move(its_segment)),
          wake(std::move(its_wake)),
          memory(wants_look),
          wake_later{.is_held = &holds_wakes} {}
    Owner owner() const noexcept { return {segment, wake.get(), &wake_later}; }
  };

  /// The sending end of a channel. The channel has the number of the endpoint.
  struct Endpoint {
    Nonce nonce{};
    Outgoing outgoing;
    bool has_called = false;   ///< True if the hello has been sent.
    bool is_waiting = true;    ///< True while the endpoint waits for the answer to the hello.
    Incoming* back = nullptr;  ///< The channel from the same peer; null until it is known.
    std::vector<std::uint32_t> knows{};  ///< Allocations that the peer has been told about.
    std::uint64_t bytes_sent = 0;
  };

  /// The receiving end of a channel. The index of the source is the number of its credits.
  struct Source {
    Peer* peer = nullptr;
    std::uint32_t their_channel = 0;
    bool has_answered = false;  ///< True if the accept has been sent, or the sender is gone.
    Incoming incoming;
    std::vector<Want> unsaid{};  ///< Wants that have not been sent yet for lack of room.
  };

  ShmTransport(Segment segment,
               Door door,
               UniqueFd wake,
               UniqueFd events,
               const ShmOptions& options,
               Logger logger);

  bool take_back_segment() noexcept;
  void meet_peers();
  void call(EndpointId id);
  void stop_waiting(Endpoint& endpoint) noexcept;
  void heed(Visitor& visitor);
  void heed_hello(const Introduction& hello, Peer& peer);
  void heed_accept(const Introduction& accept, const Peer& peer);
  void answer(std::uint32_t channel);
  Door::Sent introduce_to(const Nonce& nonce, Introduction introduction);
  Peer* peer_of(Visitor& visitor);
  void refuse(std::string_view why) const;
  const Allocation* find_shared(const ConstRegion& source);
  bool share(Endpoint& endpoint, const Allocation& allocation);
  void follow_allocations();
  bool is_left(const Peer& peer) const noexcept;
  Location locate(Endpoint& endpoint, const ConstRegion& source);
  Posted take(const Receive& receive, Arrived* arrived) noexcept;
  bool reclaim() noexcept;
  void bury_dead();
  Endpoint* way_back(const Source& source) noexcept;
  void want(const Receive& receive);
  void say(Source& source, const Want& wanted);
  void heed_wants();
  unsigned heed_kept();
  unsigned tell();

  Segment segment_;
  SlotPool slots_;
  Door door_;
  UniqueFd wake_;    ///< eventfd with which peers wake this transport.
  UniqueFd events_;  ///< epoll set of `wake_` and the door.
  ShmWrites writes_;
  DeviceMemory* devices_;
  Logger logger_;
  std::array<std::byte, 4 * sizeof(std::uint64_t)> address_{};
  bool wants_look_ = false;  ///< True if the door must be looked at.
  std::list<Peer> peers_;
  std::deque<Endpoint> endpoints_;
  std::deque<Source> sources_;
  Matcher matcher_;
  Outcomes outcomes_, telling_;
  std::vector<Allocation> shared_;  ///< The list of allocations that belongs to `shared_version_`.
  std::uint64_t shared_version_ = 0;
  bool has_late_forgets_ = false;
  std::uint64_t pull_from_ = kAnySize;
  Reserved reserved_;
  std::vector<CacheChoice*> reserved_choices_;  ///< The choices of all readers.
  std::vector<HeardWant> wants_;
  std::uint32_t held_ = 0;  ///< Number of incoming channels on hold.
  /// Number of endpoints that wait for an answer, plus number of sources without an answer.
  std::uint32_t unmet_ = 0;
  std::uint32_t idle_rounds_ = 0;
  bool is_armed_ = false;
  bool holds_wakes_ = false;  ///< See hold_wakes().
};

}  // namespace xylem::transport::shm
