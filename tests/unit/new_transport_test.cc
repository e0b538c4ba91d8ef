// SPDX-License-Identifier: Apache-2.0
//
// Adds a transport that Xylem does not contain, and whose endpoints need connections, to the list
// of kinds of transport. Ranks then use this transport together with two others.
#include "runtime/src/wires/transports.h"
#include "support/forwarding_transport.h"
#include "support/ranks.h"
#include "xylem/transport/connections.h"
#include "xylem/transport/loopback.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace xylem::test {
namespace {

using namespace transport;
using Made = Result<std::unique_ptr<Transport>>;

/// Loopback whose endpoints send nothing until they have a connection.
class Connected final : public transport::testing::ForwardingTransport, private Connections {
 public:
  Connected(std::unique_ptr<Transport> below, std::atomic<int>& adopted)
      : ForwardingTransport(std::move(below)), adopted_(adopted) {}

  Connections* connections() noexcept override { return this; }
  Posted send(EndpointId to, Tag tag, ConstRegion source, Operation& operation) noexcept override {
    Endpoint& endpoint = endpoints_[to];
    if (endpoint.is_connected) return below().send(to, tag, source, operation);
    operation.code = Code::peer_lost;
    if (endpoint.is_closed) return Posted::done;
    if (!std::exchange(endpoint.is_wanted, true) && owner_ != nullptr)
      owner_->on_connection_needed(to);
    endpoint.waiting.push_back({tag, source, &operation});
    return Posted::pending;
  }
  unsigned progress() noexcept override {
    const auto ended = std::exchange(ended_, {});
    for (Operation* const operation : ended) operation->done(*operation);
    return below().progress() + static_cast<unsigned>(ended.size());
  }
  void cancel(Operation& operation) noexcept override {
    if (std::ranges::count(ended_, &operation) > 0) return;
    for (auto& [id, endpoint] : endpoints_) {
      const auto is_it = [&](const Waiting& one) { return one.operation == &operation; };
      if (std::erase_if(endpoint.waiting, is_it) == 0) continue;
      operation.code = Code::cancelled;
      return ended_.push_back(&operation);
    }
    below().cancel(operation);
  }
  void close(EndpointId id) noexcept override {
    endpoints_[id].is_closed = true;
    for (const Waiting& one : std::exchange(endpoints_[id].waiting, {})) {
      ended_.push_back(one.operation);
    }
    below().close(id);
  }
  bool flush(EndpointId id) noexcept override {
    return endpoints_[id].waiting.empty() && below().flush(id);
  }
  Result<bool> arm() noexcept override { return ended_.empty() ? below().arm() : false; }

 private:
  struct Waiting {
    Tag tag;
    ConstRegion source;
    Operation* operation;
  };
  struct Endpoint {
    bool is_wanted = false, is_connected = false, is_closed = false;
    std::vector<Waiting> waiting;
  };

  void set_owner(ConnectionOwner* owner) noexcept override { owner_ = owner; }
  Status adopt(EndpointId id, Connection /*connection*/) override {
    Endpoint& endpoint = endpoints_[id];
    if (endpoint.is_closed || std::exchange(endpoint.is_connected, true)) return {};
    ++adopted_;
    for (const Waiting& one : std::exchange(endpoint.waiting, {})) {
      const Posted posted = below().send(id, one.tag, one.source, *one.operation);
      if (posted == Posted::done) ended_.push_back(one.operation);
    }
    return {};
  }
  void end_silent(Clock::time_point /*now*/) noexcept override {}
  bool was_connected(EndpointId id) const noexcept override {
    const auto found = endpoints_.find(id);
    return found != endpoints_.end() && found->second.is_connected;
  }

  std::atomic<int>& adopted_;
  ConnectionOwner* owner_ = nullptr;
  std::map<EndpointId, Endpoint> endpoints_;
  std::vector<Operation*> ended_;
};

TEST(ANewTransport, IsUsedWhereItsKindMayJoinTwoRanks) {
  LoopbackFabric fabric;
  std::atomic<int> adopted{0};
  RankOptions options{.size = 5, .hosts = {1, 1, 2, 3, 3}};
  options.adjust_wires = [&](std::uint32_t, std::vector<runtime::WireKind>& kinds) {
    runtime::WireKind kind;
    kind.name = "connected";
    kind.joins = "the hosts 1 and 2";
    kind.may_join = [](const auto& a, const auto& b) { return a.kernel + b.kernel == 3; };
    kind.make = [&](std::uint32_t /*peers*/) -> Made {
      return std::unique_ptr<Transport>(new Connected(fabric.attach(), adopted));
    };
    kind.has_connections = true;
    kinds.insert(kinds.begin() + 1, std::move(kind));
  };
  std::vector<std::vector<std::string>> used(options.size);
  run_ranks(options, [&](Runtime& runtime, MemoryHub&) {
    for (int call = 0; call < 3; ++call) {
      const std::int64_t mine = runtime.rank();
      std::vector<std::int64_t> all(options.size);
      const Buffer output(all.data(), all.size(), DataType::int64);
      ASSERT_TRUE(runtime.world().all_gather(one(mine), output).wait());
      EXPECT_THAT(all, ::testing::ElementsAre(0, 1, 2, 3, 4));
    }
    for (const auto& path : runtime.paths()) used[runtime.rank()].push_back(path.transport);
  });
  const std::string near = "loopback", far = "loopback-network";
  EXPECT_EQ(used[0], (std::vector<std::string>{"self", near, "connected", far, far}));
  EXPECT_EQ(used[2], (std::vector<std::string>{"connected", "connected", "self", far, far}));
  EXPECT_EQ(used[4], (std::vector<std::string>{far, far, far, near, "self"}));
  EXPECT_GE(adopted, 1);
}

}  // namespace
}  // namespace xylem::test
