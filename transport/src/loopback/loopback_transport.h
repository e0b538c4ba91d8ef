// SPDX-License-Identifier: Apache-2.0
//
// One end of a loopback fabric. Small messages are copied into the receiver's mailbox. Larger
// messages are offered: the receiver copies them once, directly out of the sender's memory.
#pragma once

#include "loopback/dice.h"
#include "loopback/mailbox.h"
#include "outcome.h"
#include "xylem/base/mutex.h"
#include "xylem/transport/loopback.h"
#include "xylem/transport/transport.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <vector>

namespace xylem::transport::loopback {

/// Finds the mailboxes of all transports of a fabric by id.
class Registry {
 public:
  explicit Registry(LoopbackOptions options) : options_(options) {}

  const LoopbackOptions& options() const noexcept { return options_; }
  std::shared_ptr<Mailbox> add();
  /// The mailbox with this id; null if its transport has ended. Fails if there never was such a
  /// mailbox.
  Result<std::shared_ptr<Mailbox>> find(std::uint64_t id);

 private:
  const LoopbackOptions options_;
  Mutex mutex_;
  std::vector<std::weak_ptr<Mailbox>> mailboxes_ XYLEM_LOCKING(guarded_by(mutex_));
};

class LoopbackTransport final : public Transport {
 public:
  explicit LoopbackTransport(std::shared_ptr<Registry> registry);
  LoopbackTransport(const LoopbackTransport&) = delete;
  LoopbackTransport& operator=(const LoopbackTransport&) = delete;
  ~LoopbackTransport() override;

  std::string_view name() const noexcept override { return "loopback"; }
  Capabilities capabilities() const noexcept override;
  std::span<const std::byte> address() const noexcept override { return address_; }
  Result<EndpointId> connect(std::span<const std::byte> address) override;
  Posted send(EndpointId to, Tag tag, ConstRegion source, Operation& operation) noexcept override;
  Posted recv(
      Tag tag, Tag mask, Region target, Operation& operation, Tag* sender_tag) noexcept override;
  void cancel(Operation& operation) noexcept override;
  std::size_t discard(Tag tag, Tag mask) noexcept override;
  unsigned progress() noexcept override;
  /// True if this transport has no pending offer, to any endpoint. Messages that are not offers are
  /// in their peer's mailbox already.
  bool flush(EndpointId /*endpoint*/) noexcept override { return offers_ == 0; }
  Result<bool> arm() noexcept override;
  int wake_fd() const noexcept override { return mailbox_->wake_fd(); }
  void close(EndpointId endpoint) noexcept override;
  std::vector<PhysicalPath> paths(EndpointId endpoint) const override;
  Traffic traffic(EndpointId endpoint) const noexcept override;

 private:
  struct Endpoint {
    /// Null once the endpoint is closed, or if the peer had already ended.
    std::shared_ptr<Mailbox> peer;
    Traffic traffic;
  };

  Posted finish(Operation& operation, Code code, std::uint64_t bytes);
  Outcome transfer(Message& message, const Receive& receive);
  void withdraw(EndpointId endpoint);
  void collect_completions();
  unsigned report_some();

  std::shared_ptr<Registry> registry_;
  std::shared_ptr<Mailbox> mailbox_;
  Dice dice_;
  /// The address of the registry, and the mailbox id.
  std::array<std::byte, 2 * sizeof(std::uint64_t)> address_{};
  std::vector<Endpoint> endpoints_;
  std::size_t offers_ = 0;  ///< Offers of this transport that are neither completed nor withdrawn.
  Outcomes outcomes_;       ///< Completions that progress() reports.

  // Scratch space, kept so that steady traffic allocates nothing.
  Outcomes later_, reporting_;
  std::vector<Completion> completions_;
  std::vector<Operation*> withdrawn_;
  Matches matches_;
};

}  // namespace xylem::transport::loopback
