// SPDX-License-Identifier: Apache-2.0
//
// Real machines: every file of a corpus is compared with its ground truth. The corpus is a
// directory with ground_truth.json, hwloc/*.xml and nccl/*.xml. Its path is in the environment
// variable XYLEM_TOPOLOGY_CORPUS, or in the CMake variable of the same name at configuration. The
// corpus is not part of the repository, since its files have their own licences.
#include "unit/topology_fixture.h"
#include "xylem/topology/assignment.h"
#include "xylem/topology/compare.h"
#include "xylem/topology/rings.h"
#include "xylem/topology/writers.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>

namespace xylem::topology::test {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

fs::path corpus() {
  const char* named = std::getenv("XYLEM_TOPOLOGY_CORPUS");
  return named != nullptr && *named != '\0' ? named : XYLEM_TOPOLOGY_CORPUS;
}

/// This file contains no PCI classes, so it does not show which functions are the eight GPUs and
/// the NIC.
constexpr std::string_view kNoTopology = "nccl/aws-g5-8xA10G.xml";

/// Reads the ground truth of each file. Skips the test if there is no corpus.
class Corpus : public testing::Test {
 protected:
  void SetUp() override {
    const fs::path truth = corpus() / "ground_truth.json";
    if (corpus().empty() || !fs::exists(truth)) {
      GTEST_SKIP() << "no corpus of real machines: set XYLEM_TOPOLOGY_CORPUS to its folder";
    }
    const Json all = Json::parse(file_text(truth.string()), nullptr, false);
    ASSERT_TRUE(all.is_object()) << truth;
    for (const auto& [file, facts] : all.items()) {
      if (file.starts_with("hwloc/")) machines.emplace_back(file, facts);
      if (file.starts_with("nccl/") && file != kNoTopology) nccl_machines.emplace_back(file, facts);
    }
    ASSERT_FALSE(machines.empty()) << truth;
  }

  /// Calls `check` with the topology and the ground truth of every machine.
  template <typename Check>
  void for_each_machine(const Check& check) {
    for_each_of(machines, check);
  }
  template <typename Check>
  void for_each_nccl_machine(const Check& check) {
    for_each_of(nccl_machines, check);
  }

  template <typename Machines, typename Check>
  static void for_each_of(const Machines& machines, const Check& check) {
    for (const auto& [file, truth] : machines) {
      SCOPED_TRACE(file);
      const auto topology = value_of(read_file((corpus() / file).string()));
      check(topology, truth);
    }
    std::printf("%zu machines compared\n", machines.size());
  }

  using Machines = std::vector<std::pair<std::string, Json>>;
  Machines machines;       ///< Machines described by hwloc.
  Machines nccl_machines;  ///< Machines described by NCCL or RCCL.
};

std::string upper(std::string_view text) {
  std::string capitals(text);
  std::ranges::transform(capitals, capitals.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return capitals;
}

TEST_F(Corpus, CountsOfGpusNicsAndNodesAreTheTruth) {
  for_each_machine([](const Topology& topology, const Json& truth) {
    EXPECT_EQ(topology.gpus().size(), truth["n_gpu"].get<std::size_t>());
    EXPECT_EQ(topology.fabric_nics().size(), truth["n_nic"].get<std::size_t>());
    EXPECT_EQ(topology.nics().size(), truth["n_nic_all"].get<std::size_t>());
    std::size_t logical = 0;
    for (const Gpu& gpu : topology.gpus())
      logical += std::max<std::size_t>(1, gpu.partitions.size());
    EXPECT_EQ(logical, truth["n_logical_gpu"].get<std::size_t>());
    const auto nodes = truth["n_numa"].get<std::size_t>();
    EXPECT_EQ(topology.numa_nodes().size(), std::max<std::size_t>(1, nodes));
    EXPECT_EQ(topology.numa_nodes().front().implied, nodes == 0);
  });
}

TEST_F(Corpus, PlacesOfGpusAreTheTruth) {
  for_each_machine([](const Topology& topology, const Json& truth) {
    ASSERT_EQ(topology.gpus().size(), truth["gpus"].size());
    for (std::size_t i = 0; i < topology.gpus().size(); ++i) {
      const PciDevice& pci = topology.gpus()[i].pci;
      const Json& gpu = truth["gpus"][i];
      EXPECT_EQ(pci.address.to_string(), gpu["bus"].get<std::string>());
      std::vector<std::uint32_t> nodes;
      for (const std::uint32_t node : pci.numa)
        nodes.push_back(topology.numa_nodes()[node].os_index);
      EXPECT_EQ(nodes, gpu["numa"].get<std::vector<std::uint32_t>>()) << "GPU" << i;
    }
  });
}

TEST_F(Corpus, NearestNicsAndTheirClassAreTheTruth) {
  for_each_machine([](const Topology& topology, const Json& truth) {
    for (std::uint32_t i = 0; i < topology.gpus().size(); ++i) {
      const NearestNics nearest = nearest_nics(topology, i);
      std::set<std::string> names;
      for (const std::uint32_t nic : nearest.nics) names.insert(topology.nics()[nic].name);
      const Json& gpu = truth["gpus"][i];
      EXPECT_EQ(names, gpu["nearest"].get<std::set<std::string>>()) << "GPU" << i;
      if (gpu["cls"].is_null()) {
        EXPECT_TRUE(nearest.nics.empty());
      } else {
        EXPECT_EQ(upper(name(nearest.path_class)), gpu["cls"].get<std::string>()) << "GPU" << i;
      }
    }
  });
}

TEST_F(Corpus, PciePathsBetweenGpusAreTheTruth) {
  for_each_machine([](const Topology& topology, const Json& truth) {
    for (std::uint32_t a = 0; a < topology.gpus().size(); ++a) {
      for (std::uint32_t b = 0; b < topology.gpus().size(); ++b) {
        const PathClass path_class = pci_path(topology, gpu(a), gpu(b)).path_class;
        const auto expected = truth["gpu_gpu_pci"][a][b].get<std::string>();
        EXPECT_EQ(a == b ? "X" : upper(name(path_class)), expected) << a << ' ' << b;
      }
    }
  });
}

/// Finds a GPU by its bus id, since the ground truth numbers GPUs as NCCL does.
std::uint32_t gpu_at(const Topology& topology, const Json& truth) {
  const auto address = PciAddress::parse(truth["bus"].get<std::string>());
  EXPECT_TRUE(address.is_ok());
  const auto at =
      std::ranges::find(topology.gpus(), *address, [](const Gpu& gpu) { return gpu.pci.address; });
  EXPECT_NE(at, topology.gpus().end()) << address->to_string();
  return static_cast<std::uint32_t>(at - topology.gpus().begin());
}

TEST_F(Corpus, NcclCountsAreTheTruth) {
  for_each_nccl_machine([](const Topology& topology, const Json& truth) {
    EXPECT_EQ(topology.gpus().size(), truth["n_gpu"].get<std::size_t>());
    EXPECT_EQ(topology.nics().size(), truth["n_nic"].get<std::size_t>());
    EXPECT_EQ(topology.numa_nodes().size(), truth["n_numa"].get<std::size_t>());
    EXPECT_EQ(topology.nvswitches().size(), truth["nvswitch"].size());
  });
}

TEST_F(Corpus, NcclPlacesOfGpusAreTheTruth) {
  for_each_nccl_machine([](const Topology& topology, const Json& truth) {
    for (const Json& gpu : truth["gpus"]) {
      const PciDevice& pci = topology.gpus().at(gpu_at(topology, gpu)).pci;
      ASSERT_EQ(pci.numa.size(), 1U);
      EXPECT_EQ(topology.numa_nodes()[pci.numa.front()].os_index, gpu["numa"].get<std::uint32_t>());
    }
  });
}

TEST_F(Corpus, NcclNearestNicsAndTheirClassAreTheTruth) {
  for_each_nccl_machine([](const Topology& topology, const Json& truth) {
    // One interface is below both CPUs. In the ground truth it is near both, while Xylem reports
    // that its location is unknown.
    const bool is_anywhere = topology.nics().size() == 1 && topology.nics().front().is_virtual &&
                             topology.nics().front().pci.numa.size() > 1;
    for (const Json& gpu : truth["gpus"]) {
      const NearestNics nearest = nearest_nics(topology, gpu_at(topology, gpu));
      std::set<std::string> names;
      for (const std::uint32_t nic : nearest.nics) names.insert(topology.nics()[nic].name);
      EXPECT_EQ(names, gpu["nearest"].get<std::set<std::string>>()) << gpu["bus"];
      EXPECT_EQ(upper(name(nearest.path_class)),
                is_anywhere ? "UNKNOWN" : gpu["cls"].get<std::string>())
          << gpu["bus"];
    }
  });
}

TEST_F(Corpus, NcclLinksAreTheTruth) {
  for_each_nccl_machine([](const Topology& topology, const Json& truth) {
    std::map<std::pair<NodeRef, NodeRef>, std::uint32_t> expected;
    for (const auto& [ends, count] : truth["links"].items()) {
      const auto dash = ends.find('-');
      const auto number = [&](const std::string& text) {
        return gpu(gpu_at(topology, truth["gpus"][std::stoul(text)]));
      };
      const NodeRef a = number(ends.substr(0, dash));
      const std::string to = ends.substr(dash + 1);
      NodeRef b;
      if (to.starts_with("sw:")) {
        const auto switches = truth["nvswitch"].get<std::vector<std::string>>();
        const auto at = std::ranges::find(switches, to.substr(3));
        b = {NodeKind::nvswitch, static_cast<std::uint32_t>(at - switches.begin())};
      } else {
        b = number(to);
      }
      expected[std::minmax(a, b)] = count.get<std::uint32_t>();
    }
    std::map<std::pair<NodeRef, NodeRef>, std::uint32_t> found;
    for (const Link& link : topology.links()) {
      found[{link.a, link.b}] = link.rate.width.value_or(0);
      EXPECT_TRUE(link.rate.bandwidth.has_value());
    }
    EXPECT_EQ(found, expected);
  });
}

// No GPU gets a NIC that is farther than necessary. Among equally near NICs, the numbers of GPUs
// differ by at most one, where the GPUs allow it.
TEST_F(Corpus, NicsAreAssignedNearAndEvenly) {
  const auto check = [](const Topology& topology, const Json&) {
    const NicAssignment assignment = assign_nics(topology);
    std::vector<std::uint32_t> usable = topology.fabric_nics();
    std::erase_if(usable, [&](auto nic) { return assignment.uses[nic] != NicUse::usable; });
    for (std::uint32_t gpu = 0; gpu < topology.gpus().size(); ++gpu) {
      const NearestNics nearest = nearest_nics(topology, gpu, usable);
      const auto& nics = assignment.gpus[gpu].nics;
      EXPECT_EQ(nics.empty(), nearest.nics.empty()) << "GPU" << gpu;
      EXPECT_FALSE(assignment.gpus[gpu].reason.empty());
      for (const std::uint32_t nic : nics) {
        EXPECT_TRUE(std::ranges::binary_search(nearest.nics, nic)) << "GPU" << gpu << " NIC" << nic;
      }
      for (const std::uint32_t other : nearest.nics) {
        EXPECT_LE(assignment.loads[nics.front()], assignment.loads[other] + 1) << "GPU" << gpu;
      }
    }
  };
  for_each_machine(check);
  for_each_nccl_machine(check);
}

/// Machines for which the matrix of nvidia-smi is available.
TEST_F(Corpus, MatricesOfNvidiaSmiAreOurs) {
  for (const auto& [file, matrix] :
       {std::pair("hwloc/juwels-booster-4xA100-4xHDR-nps4.v2.xml",
                  "juwels-booster-4xA100.topo-mp.txt"),
        std::pair("nccl/perlmutter-4xA100-4xcassini.xml", "perlmutter-4xA100.topo-m.txt")}) {
    SCOPED_TRACE(matrix);
    const auto topology = value_of(read_file((corpus() / file).string()));
    const auto text = file_text((corpus() / "smi" / matrix).string());
    const auto found = value_of(compare_matrix(topology, text, matrix));
    for (const auto& [row, column, there, here] : found) {
      ADD_FAILURE() << row << ' ' << column << ": " << there << " there, " << here << " here";
    }
  }
}

TEST_F(Corpus, DiffOfTheJuwelsNodesNamesTheSwappedNics) {
  const auto read = [](const char* file) {
    return read_file((corpus() / "hwloc" / file).string());
  };
  const auto one = read("juwels-booster-4xA100-4xHDR-nps4.v1.xml");
  const auto other = read("juwels-booster-4xA100-4xHDR-nps4.v2.xml");
  ASSERT_TRUE(one.is_ok() && other.is_ok());
  EXPECT_TRUE(diff(*one, *one).empty());
  std::map<std::string, std::string> renamed;
  for (const auto& [thing, fact, a, b] : diff(*one, *other)) {
    std::printf("%s: %s %s, %s\n", thing.c_str(), fact.c_str(), a.c_str(), b.c_str());
    if (fact == "name") renamed[a] = b;
  }
  EXPECT_EQ(
      renamed,
      (std::map<std::string, std::string>{
          {"mlx5_0", "mlx5_1"}, {"mlx5_1", "mlx5_0"}, {"mlx5_2", "mlx5_3"}, {"mlx5_3", "mlx5_2"}}));
}

TEST_F(Corpus, EveryMatrixOfNvidiaSmiCanBeRead) {
  const auto topology = value_of(read_file((corpus() / machines.front().first).string()));
  for (const auto& entry : fs::directory_iterator(corpus() / "smi")) {
    const auto found = compare_matrix(topology, file_text(entry.path().string()), "smi");
    EXPECT_TRUE(found.is_ok()) << entry.path() << ": " << found.status().to_string();
  }
}

TEST_F(Corpus, NcclTemplateWithoutClassesIsRefused) {
  EXPECT_THAT(read_file((corpus() / kNoTopology).string()),
              fails_as(Code::invalid_argument, "neither a class"));
}

TEST_F(Corpus, EveryMachineReadsBackFromJson) {
  const auto check = [](const Topology& topology, const Json&) {
    const auto back = value_of(read_json(to_json(topology), "json"));
    EXPECT_EQ(back, topology);
    EXPECT_FALSE(to_tree(topology).empty());
    EXPECT_FALSE(to_matrix(topology).empty());
  };
  for_each_machine(check);
  for_each_nccl_machine(check);
}

TEST_F(Corpus, EveryMachineReadsBackFromHwlocXml) {
  const auto check = [](const Topology& topology, const Json&) {
    const auto back = value_of(read_hwloc_xml(to_hwloc_xml(topology), "written"));
    EXPECT_EQ(back, topology);
  };
  for_each_machine(check);
  for_each_nccl_machine(check);
}

TEST_F(Corpus, NcclMachinesReadBackFromNcclXml) {
  for_each_nccl_machine([](const Topology& topology, const Json&) {
    const std::string text = to_nccl_xml(topology);
    const auto back = value_of(read_nccl_xml(text, "nccl"));
    EXPECT_EQ(back, topology) << text;
  });
}

TEST_F(Corpus, PathsOfOtherMachinesReadBackFromNcclXml) {
  for_each_machine([](const Topology& topology, const Json&) {
    const auto back = value_of(read_nccl_xml(to_nccl_xml(topology), "nccl"));
    ASSERT_EQ(back.gpus().size(), topology.gpus().size());
    ASSERT_EQ(back.nics().size(), topology.fabric_nics().size());
    for (std::uint32_t gpu = 0; gpu < topology.gpus().size(); ++gpu) {
      EXPECT_EQ(back.gpus()[gpu].pci.address, topology.gpus()[gpu].pci.address);
      if (topology.gpus()[gpu].pci.numa.size() != 1) continue;
      for (std::uint32_t nic = 0; nic < back.nics().size(); ++nic) {
        const std::uint32_t original = topology.fabric_nics()[nic];
        auto there = pci_path(topology, {NodeKind::gpu, gpu}, {NodeKind::nic, original}).path_class;
        // NCCL does not distinguish host bridges.
        if (there == PathClass::node) there = PathClass::phb;
        EXPECT_EQ(pci_path(back, {NodeKind::gpu, gpu}, {NodeKind::nic, nic}).path_class, there)
            << gpu << ' ' << topology.nics()[original].name;
      }
    }
  });
}

TEST_F(Corpus, EveryMachineHasItsBestRing) {
  const auto check = [](const Topology& topology, const Json&) {
    const RingPlan plan = plan_rings(topology);
    EXPECT_TRUE(plan.best_is_exact);
    EXPECT_EQ(plan.best.gpus.size(), topology.gpus().size());
    const BandwidthBounds bounds = bandwidth_bounds(topology);
    if (!plan.bandwidth || !bounds.all_gather) return;
    EXPECT_LE(plan.bandwidth->value, bounds.all_gather->value * (1 + 1e-6));
    EXPECT_LE(plan.bandwidth->value, bounds.all_reduce->value * (1 + 1e-6));
  };
  for_each_machine(check);
  for_each_nccl_machine(check);
}

TEST_F(Corpus, EveryFileHasItsTruth) {
  const auto files = [](const char* folder) {
    return std::ranges::count_if(fs::directory_iterator(corpus() / folder), [](const auto& entry) {
      return entry.path().extension() == ".xml";
    });
  };
  EXPECT_EQ(files("hwloc"), std::ssize(machines));
  EXPECT_EQ(files("nccl"), std::ssize(nccl_machines) + 1) << "one more file says too little";
}

}  // namespace
}  // namespace xylem::topology::test
