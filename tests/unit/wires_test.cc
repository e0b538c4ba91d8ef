// SPDX-License-Identifier: Apache-2.0
//
// The transport that two ranks use. Both choose the same transport, even if one of them lacks
// others.
#include "runtime/src/wires/wires.h"

#include "support/forwarding_transport.h"
#include "support/held_token.h"
#include "support/outcome.h"
#include "support/ranks.h"
#include "unit/tcp_connections.h"
#include "xylem/transport/seal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace xylem::test {
namespace {

using testing::HasSubstr;
using Names = std::vector<std::vector<std::string>>;

/// Returns for each rank the name of its wire to every rank. The ranks also make one all_reduce.
Names wires_used(const RankOptions& options) {
  Names names(options.size);
  run_ranks(options, [&](Runtime& runtime, MemoryHub&) {
    std::int64_t one = 1, sum = 0;
    const auto world = runtime.world();
    EXPECT_TRUE(
        world.all_reduce(ConstBuffer(&one, 1, DataType::int64), Buffer(&sum, 1, DataType::int64))
            .wait()
            .is_ok());
    EXPECT_EQ(sum, options.size);
    auto& mine = names[runtime.rank()];
    for (const auto& path : runtime.paths()) mine.push_back(path.transport);
  });
  return names;
}

TEST(Wires, OfOneHostAreNotOfTheNetwork) {
  EXPECT_EQ(wires_used({.size = 3}), (Names{{"self", "loopback", "loopback"},
                                            {"loopback", "self", "loopback"},
                                            {"loopback", "loopback", "self"}}));
}

TEST(Wires, OfTwoHosts) {
  EXPECT_EQ(wires_used({.size = 3, .hosts = {1, 2, 1}}),
            (Names{{"self", "loopback-network", "loopback"},
                   {"loopback-network", "self", "loopback-network"},
                   {"loopback", "loopback-network", "self"}}));
}

TEST(Wires, ToARankThatCannotShareMemoryAreOfTheNetwork) {
  EXPECT_EQ(wires_used({.size = 3, .without_host_wire = 1}),
            (Names{{"self", "loopback-network", "loopback"},
                   {"loopback-network", "self", "loopback-network"},
                   {"loopback", "loopback-network", "self"}}));
}

TEST(Wires, ThatMustShareMemoryAreRefusedWhereOneRankCannot) {
  RankOptions options{.size = 3, .without_host_wire = 1};
  options.environment["XYLEM_TRANSPORT"] = "shm";
  std::mutex mutex;
  std::vector<std::string> refused;
  run_ranks(
      options, [](Runtime&, MemoryHub&) { ADD_FAILURE() << "started"; },
      [&](std::uint32_t, const Status& why) {
        const std::lock_guard lock(mutex);
        refused.push_back(why.to_string());
      });
  EXPECT_EQ(refused.size(), 3U);
  EXPECT_THAT(refused, testing::Contains(HasSubstr("no memory to share")).Times(3));
  EXPECT_THAT(
      refused,
      testing::Contains(HasSubstr("rank 1 cannot use loopback: no memory to share")).Times(2));
}

void expect_all_refused(const RankOptions& options, Code code, const std::string& says) {
  run_ranks(
      options, [](Runtime&, MemoryHub&) { ADD_FAILURE() << "started"; },
      [&](std::uint32_t, const Status& why) { EXPECT_THAT(why, fails_as(code, says)); });
}

/// A transport whose handshake fails with the peer of its first endpoint.
class Shortsighted final : public transport::testing::ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;
  transport::ConnectState connect_state(transport::EndpointId id) const noexcept override {
    return id == 0 ? transport::ConnectState::failed : transport::ConnectState::complete;
  }
};

/// Prevents that ranks 0 and 2 connect over the first `of` kinds of transport.
void let_not_meet(std::uint32_t rank, std::size_t of, std::vector<runtime::WireKind>& kinds) {
  for (std::size_t kind = 0; kind < of; ++kind) {
    kinds[kind].probes_at_start = true;
    kinds[kind].make = [make = kinds[kind].make, rank](
                           std::uint32_t peers) -> Result<std::unique_ptr<transport::Transport>> {
      auto made = make(peers);
      if (rank != 2 || !made) return made;
      return std::unique_ptr<transport::Transport>(new Shortsighted(std::move(made).value()));
    };
  }
}

TEST(Wires, OfRanksThatDoNotMeetAreOfTheNextKind) {
  RankOptions options{.size = 3};
  options.adjust_wires = [](std::uint32_t rank, auto& kinds) { let_not_meet(rank, 1, kinds); };
  EXPECT_EQ(wires_used(options), (Names{{"self", "loopback", "loopback-network"},
                                        {"loopback", "self", "loopback"},
                                        {"loopback-network", "loopback", "self"}}));
}

TEST(Wires, OfRanksThatMeetOverNoneAreRefused) {
  RankOptions options{.size = 2};
  options.adjust_wires = [](std::uint32_t rank, std::vector<runtime::WireKind>& kinds) {
    let_not_meet(rank + 1, 2, kinds);
  };
  expect_all_refused(options, Code::unsupported, "do not meet over loopback-network");
}

TEST(Wires, WhoseLastKindFailsAreRefusedForThatReason) {
  RankOptions options{.size = 2, .without_host_wire = 1};
  options.adjust_wires = [](std::uint32_t rank, std::vector<runtime::WireKind>& kinds) {
    if (rank == 1) return;
    kinds[1].make = [](std::uint32_t) -> Result<std::unique_ptr<transport::Transport>> {
      return failure(Code::exhausted, "no sockets");
    };
  };
  std::vector<std::string> why(2);
  run_ranks(
      options, [](Runtime&, MemoryHub&) { ADD_FAILURE() << "started"; },
      [&](std::uint32_t rank, const Status& status) { why[rank] = status.to_string(); });
  EXPECT_THAT(why[0], HasSubstr("no sockets"));
  EXPECT_THAT(why[1], HasSubstr("rank 0 cannot use loopback-network: no sockets"));
}

TEST(Wires, ThatMustShareMemoryAreRefusedBetweenHosts) {
  RankOptions options{.size = 2, .hosts = {1, 2}, .environment = {{"XYLEM_TRANSPORT", "shm"}}};
  expect_all_refused(options, Code::unsupported,
                     "no transport that XYLEM_TRANSPORT allows joins rank");
}

TEST(Wires, ThatHaveTooLittleSharedMemoryAreRefused) {
  RankOptions options{.size = 2, .transport = "shm"};
  options.environment["XYLEM_SHARED_MEMORY"] = "4K";
  expect_all_refused(options, Code::exhausted, "4096 bytes of shared memory");
}

TEST(Wires, OfRanksWhoseSettingsDifferAreRefusedOnAll) {
  struct Setting {
    std::string name, usual, other;
  };
  for (const Setting& setting :
       {Setting{"XYLEM_SLICE", "64 KiB", "128 KiB"}, Setting{"XYLEM_PROTECTION", "auth", "off"},
        Setting{"XYLEM_ALGORITHM", "ring", "binomial"}, Setting{"XYLEM_REQUIRE", "tcp", "rdma"}}) {
    SCOPED_TRACE(setting.name);
    RankOptions options{.size = 3};
    options.adjust = [&](std::uint32_t rank, runtime::Environment& environment) {
      environment[setting.name] = rank == 2 ? setting.other : setting.usual;
    };
    std::atomic<unsigned> refused = 0;
    run_ranks(
        options, [](Runtime&, MemoryHub&) { ADD_FAILURE() << "started"; },
        [&](std::uint32_t, const Status& why) {
          EXPECT_THAT(why, fails_as(Code::mismatch, "has " + setting.name + "=" + setting.usual,
                                    "has " + setting.name + "=" + setting.other, "rank 2"));
          ++refused;
        });
    EXPECT_EQ(refused, 3U) << "no rank waits for the others";
  }
}

struct Silent final : runtime::WiresListener {
  void on_link_lost(std::uint32_t, const Status&) override {}
};

/// Returns the ciphers with which ranks 0 and 1 of three hosts seal their messages to each other.
/// The test finds the cipher by trying to open the heads of their frames.
std::vector<transport::Cipher> ciphers_used(const std::array<bool, 3>& has_aes) {
  constexpr std::size_t kHead = 40;
  const auto hub = std::make_shared<MemoryHub>(3);
  std::vector<std::vector<transport::Cipher>> opened(3);
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      const auto loaded = value_of(runtime::load_config({{"XYLEM_TRANSPORT", "tcp"}}, Options{}));
      runtime::PeerFacts facts = runtime::own_facts(loaded, Logger());
      facts.kernel = rank;
      facts.has_aes = has_aes[rank];
      const auto control = hub->attach(rank);
      Silent listener;
      const auto wires = value_of(
          runtime::Wires::connect(*control, facts, runtime::configured_wires(loaded.config, {}),
                                  runtime::wire_options(loaded.config, nullptr), listener, {},
                                  Deadline::after(std::chrono::seconds(20))));
      if (rank == 2) return;
      // The test has the other end of the connection.
      auto sockets = transport::testing::connected_sockets();
      const auto key = transport::testing::test_key(1);
      const std::uint32_t peer = 1 - rank;
      const runtime::HeldToken token;
      ASSERT_TRUE(wires->adopt(
          token, {peer, std::move(sockets.first), {key, transport::testing::test_key(2)}}));
      const auto link = value_of(wires->link(token, peer));
      const std::uint64_t word = 5;
      transport::Operation operation;
      ASSERT_EQ(link.transport->send(link.endpoint, 1, {&word, sizeof word, {}}, operation),
                transport::Posted::done);
      ASSERT_TRUE(link.transport->flush(link.endpoint));
      std::array<std::byte, kHead + transport::Seal::kTagBytes> head;
      ASSERT_EQ(::recv(sockets.second.get(), head.data(), head.size(), MSG_WAITALL),
                static_cast<ssize_t>(head.size()));
      for (const auto cipher :
           {transport::Cipher::aes256_gcm, transport::Cipher::chacha20_poly1305}) {
        if (cipher == transport::Cipher::aes256_gcm && !transport::has_aes()) continue;
        std::array<std::byte, kHead> plain;
        if (transport::Seal(cipher, key)
                .open({}, std::span(head).first(kHead), plain.data(), head.data() + kHead))
          opened[rank].push_back(cipher);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  opened[0].insert(opened[0].end(), opened[1].begin(), opened[1].end());
  return opened[0];
}

TEST(Wires, SealByAesOnlyWhereAllRanksHaveIt) {
  using transport::Cipher;
  const std::vector<Cipher> chacha(2, Cipher::chacha20_poly1305);
  for (const std::array<bool, 3> has_aes :
       {std::array{true, true, false}, std::array{true, false, true}, std::array{false, true, true},
        std::array{false, false, false}}) {
    EXPECT_EQ(ciphers_used(has_aes), chacha);
  }
  // This machine has no AES instructions, so AES cannot be tested.
  if (!transport::has_aes()) return;
  EXPECT_EQ(ciphers_used({true, true, true}), std::vector<Cipher>(2, Cipher::aes256_gcm));
}

/// The kind of transport that each pair of ranks prefers, in a job of these ranks. Rank r is on
/// host r / 2.
Names preferred_kinds(const std::vector<bool>& has_rdma, const std::string& transport) {
  std::vector<runtime::PeerFacts> peers(has_rdma.size());
  for (std::size_t rank = 0; rank < peers.size(); ++rank) {
    peers[rank].host = "node" + std::to_string(rank / 2);
    peers[rank].kernel = rank / 2;
    peers[rank].has_rdma = has_rdma[rank];
  }
  const auto loaded = value_of(runtime::load_config({{"XYLEM_TRANSPORT", transport}}, Options{}));
  const auto kinds =
      runtime::configured_wires(loaded.config, {})(runtime::Hosts(peers, 0), nullptr);
  Names names(peers.size());
  for (std::size_t a = 0; a < peers.size(); ++a) {
    for (std::size_t b = 0; b < peers.size(); ++b) {
      const auto kind = std::ranges::find_if(
          kinds, [&](const auto& each) { return each.may_join(peers[a], peers[b]); });
      names[a].push_back(a == b ? "self" : kind == kinds.end() ? "none" : kind->name);
    }
  }
  return names;
}

TEST(Wires, UseRdmaBetweenTheHostsThatHaveIt) {
  EXPECT_EQ(preferred_kinds({true, true, false, false, true}, "auto"),
            (Names{{"self", "shm", "tcp", "tcp", "ucx-rdma"},
                   {"shm", "self", "tcp", "tcp", "ucx-rdma"},
                   {"tcp", "tcp", "self", "shm", "tcp"},
                   {"tcp", "tcp", "shm", "self", "tcp"},
                   {"ucx-rdma", "ucx-rdma", "tcp", "tcp", "self"}}));
  EXPECT_EQ(preferred_kinds({false, false, true}, "auto"),
            (Names{{"self", "shm", "tcp"}, {"shm", "self", "tcp"}, {"tcp", "tcp", "self"}}));
  EXPECT_EQ(preferred_kinds({true, false, false}, "ucx-rdma"),
            (Names{{"self", "ucx-rdma", "ucx-rdma"},
                   {"ucx-rdma", "self", "ucx-rdma"},
                   {"ucx-rdma", "ucx-rdma", "self"}}))
      << "what the user asks for by name must be made";
}

/// Facts of a rank on a machine, with cores 0 … cores − 1.
runtime::PeerFacts facts_on(std::uint64_t machine,
                            std::uint64_t kernel,
                            std::uint64_t cores,
                            std::uint32_t quota = 0) {
  runtime::PeerFacts facts;
  facts.machine = machine;
  facts.kernel = kernel;
  facts.cores = {(std::uint64_t{1} << cores) - 1};
  facts.quota = quota;
  return facts;
}

TEST(Hosts, OfOneMachineShareItsCores) {
  const runtime::Hosts hosts(
      {facts_on(7, 1, 3), facts_on(7, 2, 3), facts_on(9, 3, 8), facts_on(7, 1, 3)}, 1);
  EXPECT_EQ(hosts.indices(), (std::vector<std::uint32_t>{0, 1, 2, 0}));
  EXPECT_EQ(hosts.machines(), (std::vector<std::uint32_t>{0, 0, 1, 0}));
  EXPECT_EQ(hosts.machine_cores(), (std::vector<std::uint32_t>{3, 8}));
  EXPECT_EQ(hosts.local_size(), 1);
  EXPECT_EQ(hosts.machine_size(), 3);
  EXPECT_EQ(hosts.cores(), 3);
  EXPECT_TRUE(hosts.has_core_for_each());
}

TEST(Hosts, AddUpTheQuotasOfAMachinesContainers) {
  const auto cores = [](std::vector<runtime::PeerFacts> peers) {
    return runtime::Hosts(std::move(peers), 0).machine_cores();
  };
  using Cores = std::vector<std::uint32_t>;
  EXPECT_EQ(cores({facts_on(7, 1, 8, 2), facts_on(7, 2, 8, 3), facts_on(7, 1, 8, 2)}), Cores{5});
  EXPECT_EQ(cores({facts_on(7, 1, 8, 2), facts_on(7, 2, 8)}), Cores{8}) << "one has no limit";
  EXPECT_EQ(cores({facts_on(7, 1, 4, 3), facts_on(7, 2, 4, 3)}), Cores{4});
}

/// Facts of a rank on a host, with these ports, such as "eth0 10.1.0.0/24 10.1.0.7".
runtime::PeerFacts facts_with(std::uint64_t host, const std::vector<std::string>& ports) {
  runtime::PeerFacts facts;
  facts.kernel = host;
  facts.cores = {1};
  for (const std::string& port : ports) {
    runtime::Port& each = facts.ports.emplace_back();
    std::istringstream(port) >> each.interface >> each.network >> each.address;
    each.text = each.interface;
  }
  return facts;
}

TEST(Rails, AreTheNetworksOfAllRanks) {
  using Networks = std::vector<std::string>;
  const auto shared = [](std::vector<runtime::PeerFacts> peers) {
    return runtime::Hosts(std::move(peers), 0).shared_networks();
  };
  const Networks own{"eth0 A a1", "eth1 B b1"};
  const auto beside = facts_with(1, own);
  EXPECT_EQ(shared({beside, beside, facts_with(2, {"p0 B b2", "p1 A a2"})}), (Networks{"A", "B"}))
      << "whatever their interfaces are called";
  EXPECT_EQ(shared({beside, beside}), Networks{}) << "one host";
  EXPECT_EQ(shared({facts_with(1, {"eth0 A a1", "eth1 A a3"}),
                    facts_with(2, {"eth0 A a2", "eth1 A a4"})}),
            Networks{"A"})
      << "once, though two interfaces are in it";
  EXPECT_EQ(shared({beside, beside, facts_with(2, {"eth0 A a2", "eth1 B b1"})}), Networks{"A"})
      << "two hosts have the same address";
  EXPECT_EQ(
      shared({beside, facts_with(1, {"eth0 A a1"}), facts_with(2, {"eth0 A a2", "eth1 B b2"})}),
      Networks{"A"})
      << "a rank may not use the other interface";
  EXPECT_EQ(shared({beside, beside, facts_with(2, {"eth0 C c2", "eth1 B b2"})}), Networks{})
      << "a control plane uses another network";
  EXPECT_EQ(shared({beside, beside, facts_with(2, {})}), Networks{});
}

TEST(Rails, AreUsedInTurnByTheRanksOfAHost) {
  std::vector<runtime::PeerFacts> peers;
  for (const char* host : {"1", "2", "1", "2", "2"}) {
    const std::string at(host);
    peers.push_back(facts_with(std::stoul(at), {"eth0 A a" + at, "eth1 B b" + at}));
  }
  runtime::Hosts hosts(peers, 0);
  EXPECT_EQ(hosts.rails(), (std::vector<std::uint32_t>{0, 0, 0, 0, 0}));
  EXPECT_EQ(hosts.port(2).address, "a1");
  hosts.set_rails({"A", "B"});
  EXPECT_EQ(hosts.rails(), (std::vector<std::uint32_t>{0, 0, 1, 1, 0}));
  EXPECT_EQ(hosts.port(2).address, "b1");
  EXPECT_EQ(hosts.port(3).address, "b2");
  EXPECT_THAT(hosts.ports(), HasSubstr("2 ranks, eth0; eth1\n"));
  hosts.set_rails({"A", "B", "A", "B"});
  EXPECT_EQ(hosts.rails(), (std::vector<std::uint32_t>{0, 0, 1, 1, 2})) << "a host has three ranks";
  const auto read = value_of(runtime::decode(0, runtime::encode(peers[0])));
  EXPECT_EQ(read.ports, peers[0].ports);
}

TEST(PeerFacts, AreReadOnlyIfEncodeMadeThem) {
  runtime::PeerFacts facts = facts_on(7, ~std::uint64_t{0}, 5, 4);
  facts.host = "node1";
  facts.has_rdma = true;
  facts.why_no_rdma = "text";
  facts.settings = "XYLEM_TRANSPORT=auto\n";
  auto bytes = runtime::encode(facts);
  EXPECT_TRUE(value_of(runtime::decode(3, bytes)) == facts);
  bytes.push_back({});
  const Status longer = runtime::decode(3, bytes).status();
  EXPECT_EQ(longer.code(), Code::mismatch);
  EXPECT_THAT(std::string(longer.message()), HasSubstr("rank 3 sent facts about itself"));
  for (std::size_t size = 0; size + 1 < bytes.size(); ++size) {
    EXPECT_FALSE(runtime::decode(3, std::span(bytes).first(size))) << size;
  }
}

TEST(PeerFacts, NameTheSettingThatOneRankLacks) {
  runtime::PeerFacts some, more;
  some.settings = "XYLEM_TRANSPORT=auto\n";
  more.settings = some.settings + "XYLEM_SLICE=256 KiB\n";
  EXPECT_EQ(runtime::compare_settings(0, some, 1, more).message(),
            "rank 0 has no such setting and rank 1 has XYLEM_SLICE=256 KiB; all ranks must agree "
            "on it");
  EXPECT_THAT(std::string(runtime::compare_settings(0, more, 1, some).message()),
              HasSubstr("rank 0 has XYLEM_SLICE=256 KiB and rank 1 has no such setting"));
}

TEST(Wires, OfUcxOverTcpAreWarnedOfByEachRank) {
  const std::string path = testing::TempDir() + "xylem-wires-" + std::to_string(::getpid()) + ".";
  RankOptions options{.size = 2, .transport = "ucx-tcp"};
  options.environment["XYLEM_LOG"] = "warn,file=" + path + "%r";
  EXPECT_EQ(wires_used(options), (Names{{"self", "ucx-tcp"}, {"ucx-tcp", "self"}}));
  for (std::uint32_t rank = 0; rank < options.size; ++rank) {
    const std::string name = path + std::to_string(rank);
    std::ifstream file(name);
    const std::string log(std::istreambuf_iterator<char>(file), {});
    EXPECT_THAT(log, HasSubstr("UCX listens on lo while the job runs"));
    std::filesystem::remove(name);
  }
}

}  // namespace
}  // namespace xylem::test
