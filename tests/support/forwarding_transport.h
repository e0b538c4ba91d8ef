// SPDX-License-Identifier: Apache-2.0
//
// A transport that forwards each call to another transport. Tests derive from it to override some
// of the functions.
#pragma once

#include "xylem/transport/transport.h"

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

namespace xylem::transport::testing {

class ForwardingTransport : public Transport {
 public:
  explicit ForwardingTransport(std::unique_ptr<Transport> below) : below_(std::move(below)) {}

  std::string_view name() const noexcept override { return below_->name(); }
  Capabilities capabilities() const noexcept override { return below_->capabilities(); }
  std::span<const std::byte> address() const noexcept override { return below_->address(); }
  Result<EndpointId> connect(std::span<const std::byte> to) override { return below_->connect(to); }
  ConnectState connect_state(EndpointId id) const noexcept override {
    return below_->connect_state(id);
  }
  Posted send(EndpointId to, Tag tag, ConstRegion source, Operation& operation) noexcept override {
    return below_->send(to, tag, source, operation);
  }
  Posted recv(Tag tag, Tag mask, Region to, Operation& operation, Tag* sent) noexcept override {
    return below_->recv(tag, mask, to, operation, sent);
  }
  bool send_inline(EndpointId to, Tag tag, const void* data, std::uint64_t n) noexcept override {
    return below_->send_inline(to, tag, data, n);
  }
  Views* views() noexcept override { return below_->views(); }
  HostPeers* host_peers() noexcept override { return below_->host_peers(); }
  Connections* connections() noexcept override { return below_->connections(); }
  void cancel(Operation& operation) noexcept override { below_->cancel(operation); }
  std::size_t discard(Tag tag, Tag mask) noexcept override { return below_->discard(tag, mask); }
  unsigned progress() noexcept override { return below_->progress(); }
  bool flush(EndpointId id) noexcept override { return below_->flush(id); }
  Result<bool> arm() noexcept override { return below_->arm(); }
  bool waits_for_device() const noexcept override { return below_->waits_for_device(); }
  int wake_fd() const noexcept override { return below_->wake_fd(); }
  void close(EndpointId id) noexcept override { below_->close(id); }
  std::vector<PhysicalPath> paths(EndpointId id) const override { return below_->paths(id); }
  Traffic traffic(EndpointId id) const noexcept override { return below_->traffic(id); }

 protected:
  Transport& below() const noexcept { return *below_; }

 private:
  const std::unique_ptr<Transport> below_;
};

}  // namespace xylem::transport::testing
