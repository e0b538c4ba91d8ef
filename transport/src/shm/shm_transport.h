// SPDX-License-Identifier: Apache-2.0
//
// ShmTransport: tagged messages over channels in shared memory. It matches messages with receives,
// and reports completions; Channels moves the messages.
#pragma once

#include "matcher.h"
#include "outcome.h"
#include "shm/cache_choice.h"
#include "shm/channels.h"
#include "shm/own_memory.h"
#include "shm/owner.h"
#include "shm/peer_socket.h"
#include "shm/peers.h"
#include "shm/segment.h"
#include "shm/slot_pool.h"
#include "xylem/base/log.h"
#include "xylem/transport/host_peers.h"
#include "xylem/transport/shm.h"
#include "xylem/transport/transport.h"
#include "xylem/transport/views.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace xylem::transport::shm {

class ShmTransport final : public Transport, public Views, public HostPeers {
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
  ConnectState connect_state(EndpointId endpoint) const noexcept override;
  Posted send(EndpointId to, Tag tag, ConstRegion source, Operation& operation) noexcept override;
  bool send_inline(EndpointId to, Tag tag, const void* data, std::uint64_t bytes) noexcept override;
  Posted recv(
      Tag tag, Tag mask, Region target, Operation& operation, Tag* sender_tag) noexcept override;
  Views* views() noexcept override { return this; }
  HostPeers* host_peers() noexcept override { return this; }
  void cancel(Operation& operation) noexcept override;
  std::size_t discard(Tag tag, Tag mask) noexcept override;
  unsigned progress() noexcept override;
  bool flush(EndpointId endpoint) noexcept override;
  Result<bool> arm() noexcept override;
  int wake_fd() const noexcept override { return sleeper_.fd(); }
  bool waits_for_device() const noexcept override { return channels_.is_copying(); }
  void close(EndpointId endpoint) noexcept override;
  std::vector<PhysicalPath> paths(EndpointId endpoint) const override;
  Traffic traffic(EndpointId endpoint) const noexcept override;

  std::uint64_t view_bytes() const noexcept override { return segment_.geometry().large_bytes; }
  Posted recv_view(Tag tag, Region target, Operation& operation, Memory reader) noexcept override;
  bool take_view(EndpointId from, Tag tag, std::uint64_t bytes, View& view) noexcept override;
  bool release(const View& view) noexcept override;
  bool is_readable(const ConstRegion& source) noexcept override {
    return own_memory_.is_readable(source);
  }
  void pull_from(std::uint64_t bytes) noexcept override { own_memory_.pull_from(bytes); }
  ReserveResult reserve(std::span<const EndpointId> to,
                        std::uint64_t bytes,
                        Reservation& reservation) noexcept override;
  void fill(const void* data, CopyTarget also) noexcept override;
  void commit(EndpointId to, Tag tag) noexcept override;
  void abandon() noexcept override;
  std::uint32_t unread(EndpointId to) noexcept override {
    return channels_.endpoint(to).outgoing.unread();
  }

  void hold_wakes(bool held) noexcept override { peers_.hold_wakes(held); }
  void show_computing(bool computes) noexcept override {
    segment_.header().computes.store(computes, std::memory_order_relaxed);
  }
  bool do_peers_compute() const noexcept override;

 private:
  /// The slot that reserve() has provided.
  struct Reserved {
    std::uint32_t slot = 0;
    std::uint64_t bytes = 0;
    std::uint32_t readers = 0;
  };

  ShmTransport(Segment segment,
               PeerSocket socket,
               Sleeper sleeper,
               const ShmOptions& options,
               const Logger& logger);

  Posted match(const Receive& receive, Arrived* arrived) noexcept;

  Segment segment_;
  SlotPool slots_;
  Sleeper sleeper_;
  DeviceMemory* devices_;
  std::array<std::byte, 4 * sizeof(std::uint64_t)> address_{};
  Matcher matcher_;
  Outcomes outcomes_, reporting_;
  Peers peers_;
  Channels channels_;
  OwnMemory own_memory_;
  Reserved reserved_;
  CacheChoices reader_choices_;  ///< The choices of all readers of the reserved slot.
  std::uint32_t idle_rounds_ = 0;
};

}  // namespace xylem::transport::shm
