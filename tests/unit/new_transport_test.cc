// SPDX-License-Identifier: Apache-2.0
//
// A transport that Xylem does not have, whose endpoints need connections. It is entered in the list
// of the kinds of transport, and nowhere else; ranks then use it beside two others.
#include "runtime/src/wires/transports.h"
#include "support/ranks.h"
#include "xylem/transport/connections.h"
#include "xylem/transport/loopback.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace xylem::test {
namespace {

using namespace transport;

/// Loopback whose endpoints send nothing before they have a connection.
class Connected final : public Transport, private Connections {
 public:
  Connected(std::unique_ptr<Transport> below, std::atomic<int>& adopted)
      : below_(std::move(below)), adopted_(adopted) {}

  Connections* connections() noexcept override { return this; }
  Posted send(EndpointId to, Tag tag, ConstRegion source, Operation& operation) noexcept override {
    if (connected_.contains(to)) return below_->send(to, tag, source, operation);
    if (wanted_.insert(to).second) owner_->on_wanted(to);
    waiting_.push_back({to, tag, source, &operation});
    return Posted::pending;
  }
  unsigned progress() noexcept override {
    const auto ended = std::exchange(ended_, {});
    for (Operation* const operation : ended) operation->done(*operation);
    return below_->progress() + static_cast<unsigned>(ended.size());
  }
  void cancel(Operation& operation) noexcept override {
    const auto is_it = [&](const Waiting& one) { return one.operation == &operation; };
    if (std::erase_if(waiting_, is_it) == 0) return below_->cancel(operation);
    operation.code = Code::cancelled;
    ended_.push_back(&operation);
  }
  void close(EndpointId endpoint) noexcept override {
    for (const Waiting& one : take_waiting(endpoint)) {
      one.operation->code = Code::peer_lost;
      ended_.push_back(one.operation);
    }
    below_->close(endpoint);
  }

  // The rest is loopback's.
  std::string_view name() const noexcept override { return "connected"; }
  Capabilities capabilities() const noexcept override { return below_->capabilities(); }
  std::span<const std::byte> address() const noexcept override { return below_->address(); }
  Result<EndpointId> connect(std::span<const std::byte> to) override { return below_->connect(to); }
  Posted recv(
      Tag tag, Tag mask, Region target, Operation& operation, Tag* sender) noexcept override {
    return below_->recv(tag, mask, target, operation, sender);
  }
  std::size_t discard(Tag tag, Tag mask) noexcept override { return below_->discard(tag, mask); }
  bool flush(EndpointId endpoint) noexcept override { return below_->flush(endpoint); }
  Result<bool> arm() noexcept override { return below_->arm(); }
  int wake_fd() const noexcept override { return below_->wake_fd(); }
  std::vector<PhysicalPath> paths(EndpointId endpoint) const override {
    return below_->paths(endpoint);
  }
  std::uint64_t bytes_sent(EndpointId endpoint) const noexcept override {
    return below_->bytes_sent(endpoint);
  }

 private:
  struct Waiting {
    EndpointId to;
    Tag tag;
    ConstRegion source;
    Operation* operation;
  };

  void set_owner(ConnectionOwner* owner) noexcept override { owner_ = owner; }
  Status adopt(EndpointId endpoint, Connection /*connection*/) override {
    ++adopted_;
    connected_.insert(endpoint);
    for (const Waiting& one : take_waiting(endpoint)) {
      const Posted posted = below_->send(endpoint, one.tag, one.source, *one.operation);
      if (posted == Posted::done) ended_.push_back(one.operation);
    }
    return {};
  }
  void end_silent(Clock::time_point /*now*/) noexcept override {}
  bool has_met(EndpointId endpoint) const noexcept override {
    return connected_.contains(endpoint);
  }
  std::vector<Waiting> take_waiting(EndpointId endpoint) {
    std::vector<Waiting> taken;
    std::ranges::copy_if(waiting_, std::back_inserter(taken),
                         [&](const Waiting& one) { return one.to == endpoint; });
    std::erase_if(waiting_, [&](const Waiting& one) { return one.to == endpoint; });
    return taken;
  }

  const std::unique_ptr<Transport> below_;
  std::atomic<int>& adopted_;
  ConnectionOwner* owner_ = nullptr;
  std::set<EndpointId> wanted_, connected_;
  std::vector<Waiting> waiting_;
  std::vector<Operation*> ended_;
};

TEST(ANewTransport, IsUsedWhereItsKindMayJoinTwoRanks) {
  LoopbackFabric fabric;
  std::atomic<int> adopted{0};
  RankOptions options{.size = 5, .hosts = {1, 1, 2, 3, 3}};
  options.adjust_wires = [&](std::uint32_t, std::vector<runtime::WireKind>& kinds) {
    // Between the hosts 1 and 2.
    kinds.insert(kinds.begin() + 1,
                 {.name = "connected",
                  .may_join = [](const auto& a, const auto& b) { return a.kernel + b.kernel == 3; },
                  .make = [&](std::uint32_t /*peers*/) -> Result<std::unique_ptr<Transport>> {
                    std::unique_ptr<Transport> made(new Connected(fabric.attach(), adopted));
                    return made;
                  },
                  .has_connections = true});
  };
  std::vector<std::vector<std::string>> used(options.size);
  run_ranks(options, [&](Runtime& runtime, MemoryHub&) {
    for (int call = 0; call < 3; ++call) {
      const std::int64_t mine = runtime.rank();
      std::vector<std::int64_t> all(options.size);
      ASSERT_TRUE(runtime.world()
                      .all_gather(one(mine), Buffer(all.data(), all.size(), DataType::int64))
                      .wait());
      EXPECT_THAT(all, testing::ElementsAre(0, 1, 2, 3, 4));
    }
    for (const auto& path : runtime.paths()) used[runtime.rank()].push_back(path.transport);
  });
  const std::string near = "loopback", far = "loopback-network";
  EXPECT_EQ(used[0], (std::vector<std::string>{"self", near, "connected", far, far}));
  EXPECT_EQ(used[2], (std::vector<std::string>{"connected", "connected", "self", far, far}));
  EXPECT_EQ(used[4], (std::vector<std::string>{far, far, far, near, "self"}));
  EXPECT_GE(adopted, 2);
}

}  // namespace
}  // namespace xylem::test
