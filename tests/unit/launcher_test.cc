// SPDX-License-Identifier: Apache-2.0
//
// The meaning of each launcher's variables, the precedence of launchers, and the choice of the
// store.
#include "runtime/src/bootstrap/launcher.h"

#include "runtime/src/bootstrap/slurm_nodes.h"
#include "runtime/src/bootstrap/tcp_store.h"
#include "runtime/src/config/config.h"
#include "runtime/src/config/rendezvous.h"
#include "support/control_ranks.h"
#include "support/outcome.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace xylem::runtime {
namespace {

Result<Placement> detect(const Environment& environment, const Options& options = {}) {
  XYLEM_TRY(const auto loaded, load_config(environment, options));
  return detect_placement(loaded.config, environment);
}

Environment merged(std::initializer_list<Environment> parts) {
  Environment all;
  for (const Environment& part : parts) all.insert(part.begin(), part.end());
  return all;
}

const Environment kTorchrun = {{"RANK", "1"},
                               {"WORLD_SIZE", "4"},
                               {"LOCAL_RANK", "1"},
                               {"MASTER_ADDR", "node7"},
                               {"MASTER_PORT", "29500"},
                               {"TORCHELASTIC_RUN_ID", "none"},
                               {"TORCHELASTIC_RESTART_COUNT", "0"}};
const Environment kOpenMpi = {
    {"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "3"}, {"PMIX_NAMESPACE", "1267990529"}};
const Environment kMpich = {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"PMI_FD", "7"}};
const Environment kSlurm = {{"SLURM_PROCID", "5"},
                            {"SLURM_NTASKS", "6"},
                            {"SLURM_STEP_NODELIST", "node[08-10,12]"},
                            {"SLURM_JOB_ID", "4711"},
                            {"SLURM_STEP_ID", "0"}};
const Environment kXylem = {{"XYLEM_RANK", "0"},
                            {"XYLEM_SIZE", "2"},
                            {"XYLEM_RENDEZVOUS", "tcp://127.0.0.1:4000"},
                            {"XYLEM_JOB", "run-1"}};

TEST(Launcher, WithoutAnyIsAJobOfOne) {
  const auto placement = value_of(detect({}));
  EXPECT_EQ(placement.launcher, "none");
  EXPECT_EQ(placement.rank, 0U);
  EXPECT_EQ(placement.size, 1U);
}

TEST(Launcher, EachIsRead) {
  struct Case {
    Environment environment;
    const char* launcher;
    std::uint32_t rank, size;
    const char* rendezvous_host;
  };
  const Case cases[] = {
      {kXylem, "xylem", 0, 2, "127.0.0.1"}, {kTorchrun, "torchrun", 1, 4, "node7"},
      {kOpenMpi, "openmpi", 2, 3, ""},      {kMpich, "mpich", 0, 2, ""},
      {kSlurm, "slurm", 5, 6, "node08"},
  };
  for (const Case& each : cases) {
    const auto placement = detect(each.environment);
    ASSERT_TRUE(placement) << each.launcher << ": " << placement.status().to_string();
    EXPECT_EQ(placement->launcher, each.launcher);
    EXPECT_EQ(placement->rank, each.rank) << each.launcher;
    EXPECT_EQ(placement->size, each.size) << each.launcher;
    EXPECT_EQ(placement->rendezvous_host, each.rendezvous_host) << each.launcher;
    EXPECT_NE(placement->secret_origin, runtime::SecretOrigin::given);
    EXPECT_GE(placement->secret.size(), 32U) << each.launcher;
  }
}

TEST(Launcher, AJobOfXylemRunInsideAnAllocationIsXylems) {
  const auto placement = value_of(detect(merged({kXylem, kTorchrun, kOpenMpi, kMpich, kSlurm})));
  EXPECT_EQ(placement.launcher, "xylem");
  EXPECT_EQ(placement.size, 2U);
}

TEST(Launcher, TheInnermostOfOthersWins) {
  EXPECT_EQ(detect(merged({kTorchrun, kSlurm}))->launcher, "torchrun");
  EXPECT_EQ(detect(merged({kOpenMpi, kSlurm}))->launcher, "openmpi");
  EXPECT_EQ(detect(merged({kMpich, kSlurm}))->launcher, "mpich");
}

TEST(Launcher, AProgramThatNamesItsRankNeedsNone) {
  Options options;
  options.rank = 1;
  options.size = 3;
  const auto placement = value_of(detect(kSlurm, options));
  EXPECT_EQ(placement.launcher, "options");
  EXPECT_EQ(placement.rank, 1U);
}

TEST(Launcher, HalfSetVariablesAreNamed) {
  const std::pair<Environment, std::pair<const char*, const char*>> cases[] = {
      {{{"XYLEM_RANK", "0"}}, {"XYLEM_RANK", "XYLEM_SIZE"}},
      {{{"WORLD_SIZE", "2"}}, {"WORLD_SIZE", "RANK"}},
      {{{"OMPI_COMM_WORLD_RANK", "0"}}, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}},
      {{{"PMI_SIZE", "2"}}, {"PMI_SIZE", "PMI_RANK"}},
      {{{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "0"}}, {"SLURM_PROCID", "SLURM_NTASKS"}},
  };
  for (const auto& [environment, names] : cases) {
    const auto placement = detect(environment);
    EXPECT_THAT(placement, fails_as(Code::invalid_argument, std::string(names.first) + " is set",
                                    std::string(names.second) + " is not"));
  }
}

TEST(Launcher, ARankBeyondTheSizeIsNamed) {
  const auto placement = detect({{"RANK", "4"}, {"WORLD_SIZE", "4"}});
  EXPECT_THAT(placement, fails_as(Code::invalid_argument, "RANK is 4", "WORLD_SIZE is 4"));
}

TEST(Launcher, ANumberThatIsNoneIsNamed) {
  EXPECT_THAT(detect({{"PMI_RANK", "zero"}, {"PMI_SIZE", "2"}}),
              fails_with("PMI_RANK is \"zero\""));
}

TEST(Launcher, AnMpichThatHidesTheSizeIsNotTakenForJobsOfOne) {
  EXPECT_THAT(detect({{"PMI_PORT", "vm:35043"}, {"PMI_ID", "1"}}),
              fails_as(Code::unsupported, "XYLEM_RENDEZVOUS"));
}

TEST(Launcher, ABatchScriptOfSlurmIsAJobOfOne) {
  const auto placement =
      value_of(detect({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "1"}}));
  EXPECT_EQ(placement.size, 1U);
}

TEST(Launcher, JobsDifferByIdentityAndIncarnation) {
  const auto job = [](Environment environment, const char* name, const char* value) {
    environment[name] = value;
    return detect(environment)->job;
  };
  const std::set<std::string> jobs = {
      detect(kTorchrun)->job,
      job(kTorchrun, "TORCHELASTIC_RESTART_COUNT", "1"),
      job(kTorchrun, "MASTER_PORT", "29501"),
      job(kTorchrun, "TORCHELASTIC_RUN_ID", "other"),
      job(kTorchrun, "XYLEM_JOB", "second"),
      detect(kSlurm)->job,
      job(kSlurm, "SLURM_STEP_ID", "1"),
      job(kSlurm, "SLURM_RESTART_COUNT", "1"),
      detect(kOpenMpi)->job,
      job(kOpenMpi, "PMIX_NAMESPACE", "1267990530"),
  };
  EXPECT_EQ(jobs.size(), 10U);
}

TEST(Launcher, ASecretIsTheUsersOrFollowsFromTheJob) {
  Environment environment = kTorchrun;
  const auto derived = detect(environment);
  environment["TORCHELASTIC_RESTART_COUNT"] = "1";
  EXPECT_NE(detect(environment)->secret, derived->secret);
  environment["XYLEM_SECRET"] = "given";
  const auto given = detect(environment);
  EXPECT_EQ(given->secret, "given");
  EXPECT_EQ(given->secret_origin, runtime::SecretOrigin::given);
}

TEST(SlurmNodes, ListsExpand) {
  const std::pair<const char*, std::vector<std::string>> cases[] = {
      {"node1", {"node1"}},
      {"node[01-03,07]", {"node01", "node02", "node03", "node07"}},
      {"node[8-11]", {"node8", "node9", "node10", "node11"}},
      {"a,b[1,2],c", {"a", "b1", "b2", "c"}},
      {"r[1-2]n[1-2]-ib", {"r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib"}},
  };
  for (const auto& [list, nodes] : cases) {
    const auto expanded = value_of(expand_node_list(list));
    EXPECT_THAT(std::vector<std::string>(expanded), testing::UnorderedElementsAreArray(nodes))
        << list;
    EXPECT_EQ(expanded.front(), nodes.front());
  }
}

TEST(SlurmNodes, DamagedListsAreRefusedWithTheList) {
  for (const char* const list : {"", "a,,b", "node[1-3", "node[x]", "node[3-1]", "node[1-99999999]",
                                 "n[1-9999]n[1-9999]", "a,"}) {
    const auto expanded = expand_node_list(list);
    EXPECT_THAT(expanded, fails_as(Code::invalid_argument, std::string("\"") + list + "\""))
        << list;
  }
}

TEST(Rendezvous, AddressesAreRead) {
  EXPECT_EQ(std::get<HostPort>(parse_rendezvous("tcp://node-1.example:65535").value()),
            (HostPort{"node-1.example", 65535}));
  EXPECT_EQ(std::get<HostPort>(parse_rendezvous("tcp://[fe80::1%eth0]:1").value()),
            (HostPort{"fe80::1%eth0", 1}));
  EXPECT_EQ(std::get<SharedDirectory>(parse_rendezvous("file:///a b").value()).path, "/a b");
  EXPECT_EQ((HostPort{"::1", 5}).to_string(), "[::1]:5");
}

TEST(DerivedPorts, AreFewFixedByTheJobAndNeverTheOneToAvoid) {
  const auto ports = derived_ports("job a", 0);
  EXPECT_EQ(ports, derived_ports("job a", 0));
  EXPECT_NE(ports, derived_ports("job b", 0));
  EXPECT_GE(ports.size(), 4U);
  EXPECT_EQ(std::set(ports.begin(), ports.end()).size(), ports.size());
  for (const std::uint16_t port : ports) {
    EXPECT_GT(port, 1023);
    EXPECT_LT(port, 32768);
    const auto others = derived_ports("job a", port);
    EXPECT_EQ(std::ranges::count(others, port), 0);
  }
}

Status open_error(const Environment& environment) {
  const auto placement = detect(environment);
  if (!placement) return placement.status();
  const auto store = open_store(*placement, load_config(environment, {})->config, environment,
                                nullptr, {}, Deadline::after(std::chrono::milliseconds(50)));
  return store.status();
}

TEST(OpenStore, AJobOfOneNeedsNoneAndAUsersStoreWins) {
  EXPECT_TRUE(open_error({}));
  const auto users = std::make_shared<test::MemoryStore>();
  const auto placement = detect(kXylem);
  const auto store = value_of(open_store(*placement, load_config(kXylem, {})->config, kXylem, users,
                                         {}, test::soon_enough()));
  EXPECT_EQ(store, users);
}

TEST(OpenStore, WithoutAPlaceToMeetSaysWhatToSet) {
  EXPECT_THAT(open_error({{"XYLEM_RANK", "1"}, {"XYLEM_SIZE", "2"}}),
              fails_as(Code::invalid_argument, "XYLEM_RENDEZVOUS"));
  EXPECT_THAT(open_error({{"RANK", "1"}, {"WORLD_SIZE", "2"}}), fails_with("MASTER_ADDR"));
  EXPECT_THAT(open_error({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}),
              fails_as(Code::unsupported, "PMI_FD"));
  EXPECT_THAT(open_error({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"PMI_FD", "999"}}),
              fails_with("PMI_FD is 999"));
}

}  // namespace
}  // namespace xylem::runtime
