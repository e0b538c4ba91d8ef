// SPDX-License-Identifier: Apache-2.0
//
// XYLEM_REQUIRE: jobs whose ranks use another transport fail at their start, on all ranks alike.
#include "runtime/src/wires/requirement.h"

#include "support/outcome.h"
#include "support/ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace xylem::test {
namespace {

using runtime::Requirement;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Real transports between ranks on these hosts.
RankOptions required(const std::string& value,
                     const std::vector<std::uint32_t>& hosts,
                     const std::string& transport = "auto") {
  RankOptions options{
      .size = static_cast<std::uint32_t>(hosts.size()), .transport = transport, .hosts = hosts};
  options.environment["XYLEM_REQUIRE"] = value;
  return options;
}

/// As required(), over loopback. Within a host it stands for shared memory, between hosts for RDMA,
/// and a third kind, between all ranks, for TCP.
RankOptions required_of_stand_ins(const std::string& value,
                                  const std::vector<std::uint32_t>& hosts) {
  RankOptions options = required(value, hosts, "loopback");
  options.adjust_wires = [](std::uint32_t, std::vector<runtime::WireKind>& kinds) {
    kinds.push_back(kinds[1]);
    kinds[0].satisfies = Requirement::shm;
    kinds[1].name = "rdma-stand-in";
    kinds[1].satisfies = Requirement::rdma;
    kinds[2].name = "tcp-stand-in";
    kinds[2].satisfies = Requirement::tcp;
  };
  return options;
}

/// The transports that are in use, if the job starts. Fails if it does not.
std::set<std::string> started(const RankOptions& options) {
  std::mutex mutex;
  std::set<std::string> used;
  run_ranks(options, [&](Runtime& runtime, MemoryHub&) {
    const std::lock_guard lock(mutex);
    for (const auto& path : runtime.paths()) used.insert(path.transport);
  });
  return used;
}

/// The error with which all ranks fail to start.
std::string refused(const RankOptions& options) {
  std::mutex mutex;
  std::multiset<std::string> errors;
  run_ranks(
      options, [](Runtime&, MemoryHub&) { ADD_FAILURE() << "started"; },
      [&](std::uint32_t, const Status& why) {
        const std::lock_guard lock(mutex);
        EXPECT_EQ(why.code(), Code::unsupported) << why.to_string();
        errors.emplace(why.message());
      });
  EXPECT_EQ(errors.size(), options.size);
  if (errors.empty()) return "";
  EXPECT_EQ(errors.count(*errors.begin()), options.size) << "all ranks say the same";
  return *errors.begin();
}

using Used = std::set<std::string>;

TEST(Requirement, IsSatisfiedByTheTransportThatItNames) {
  EXPECT_EQ(started(required("shm", {1, 1, 1})), (Used{"self", "shm"}));
  EXPECT_EQ(started(required("tcp", {1, 2, 1})), (Used{"self", "shm", "tcp"}));
  EXPECT_EQ(started(required("tcp", {1, 2}, "ucx-tcp")), (Used{"self", "ucx-tcp"}));
  EXPECT_EQ(started(required_of_stand_ins("rdma", {1, 2, 1})),
            (Used{"self", "loopback", "rdma-stand-in"}));
}

TEST(Requirement, OfANetworkAllowsAnyTransportWithinAHost) {
  EXPECT_EQ(started(required("rdma", {1, 1}, "tcp")), (Used{"self", "tcp"}));
  EXPECT_EQ(started(required("tcp", {1, 1})), (Used{"self", "shm"}));
}

TEST(Requirement, IsSatisfiedByARankAlone) {
  for (const char* value : {"shm", "tcp", "rdma"}) {
    EXPECT_EQ(started(required(value, {1})), (Used{"self"})) << value;
  }
}

TEST(Requirement, OfSharedMemoryIsRefusedBetweenHosts) {
  EXPECT_THAT(
      refused(required("shm", {1, 2, 1})),
      AllOf(StartsWith("XYLEM_REQUIRE=shm demands shared memory between all ranks, but rank 0 on "),
            HasSubstr(" and rank 1 on "), HasSubstr(" use tcp (only ranks with the same boot id"),
            HasSubstr("start all ranks on one host"),
            HasSubstr("unset XYLEM_REQUIRE to fall back")));
}

TEST(Requirement, OfSharedMemoryIsRefusedWithinAHostThatUsesTcp) {
  EXPECT_THAT(
      refused(required("shm", {1, 1}, "tcp")),
      AllOf(HasSubstr(" use tcp: start all ranks"), HasSubstr("with XYLEM_TRANSPORT=auto")));
}

TEST(Requirement, NamesThePairAndTheRankThatCannotShareMemory) {
  RankOptions options = required_of_stand_ins("shm", {1, 1, 1});
  options.without_host_wire = 2;
  EXPECT_THAT(refused(options), AllOf(HasSubstr("but rank 0 on "), HasSubstr(" and rank 2 on "),
                                      HasSubstr(" use rdma-stand-in (rank 2 cannot use loopback: "
                                                "no memory to share)")));
}

TEST(Requirement, OfTcpIsRefusedWhereRdmaIsPreferred) {
  EXPECT_THAT(refused(required_of_stand_ins("tcp", {1, 1, 2})),
              AllOf(HasSubstr("demands TCP between ranks on different hosts, but rank 0 on "),
                    HasSubstr(" and rank 2 on "),
                    HasSubstr(" use rdma-stand-in: set XYLEM_TRANSPORT=tcp, or unset")));
}

TEST(Requirement, OfRdmaSaysWhyItIsNotUsed) {
  // The real kinds: no rank of this job may use RDMA.
  EXPECT_THAT(
      refused(required("rdma", {1, 2}, "tcp")),
      AllOf(HasSubstr("but rank 0 on "), HasSubstr(" and rank 1 on "),
            HasSubstr(" use tcp (rank 0 cannot use RDMA: XYLEM_TRANSPORT is tcp, not auto)"),
            HasSubstr("`xylem info`")));
  // No device has this name, so the reason depends on whether this machine has RDMA.
  RankOptions without = required("rdma", {1, 2});
  without.environment["XYLEM_DEVICES"] = "no_such_device";
  EXPECT_THAT(refused(without), HasSubstr(" use tcp (rank 0 cannot use RDMA: "));
  // A rank that should have RDMA cannot make its transport.
  RankOptions options = required_of_stand_ins("rdma", {1, 1, 2, 2});
  options.adjust_wires = [adjust = options.adjust_wires](std::uint32_t rank,
                                                         std::vector<runtime::WireKind>& kinds) {
    adjust(rank, kinds);
    if (rank != 3) return;
    kinds[1].make = [](std::uint32_t) -> Result<std::unique_ptr<transport::Transport>> {
      return failure(Code::exhausted, "no queue pairs");
    };
  };
  EXPECT_THAT(
      refused(options),
      AllOf(HasSubstr("but rank 0 on "), HasSubstr(" and rank 3 on "),
            HasSubstr("use tcp-stand-in (rank 3 cannot use rdma-stand-in: no queue pairs)")));
}

TEST(Requirement, NamesRanksThatNoTransportJoins) {
  EXPECT_THAT(refused(required("tcp", {1, 2}, "shm")),
              HasSubstr(" use no transport: set XYLEM_TRANSPORT=tcp"));
}

}  // namespace
}  // namespace xylem::test
