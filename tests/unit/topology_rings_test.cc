// SPDX-License-Identifier: Apache-2.0
//
// Compares rings and bounds with a brute-force search over the links. It uses neither the graphs
// nor the searches under test.
#include "unit/topology_fixture.h"
#include "xylem/topology/rings.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <tuple>

namespace xylem::topology::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

std::vector<std::uint32_t> all_gpus(const Topology& topology) {
  std::vector<std::uint32_t> gpus(topology.gpus().size());
  std::iota(gpus.begin(), gpus.end(), 0U);
  return gpus;
}

/// One direction of a link: the two nodes of the link, and the direction, up or down.
using Lane = std::tuple<NodeRef, NodeRef, bool>;

/// Counts for each lane how often it is used, and stores its capacity.
class Traffic {
 public:
  explicit Traffic(const Topology& topology) : topology_(topology) {}

  void send(std::uint32_t from, std::uint32_t to) {
    if (send_direct(from, to) || send_switched(from, to)) return;
    send_pcie(from, to);
  }

  /// Returns the rate of each transfer if all transfers run at once.
  double rate() const {
    double least = 1e300;
    for (const auto& [lane, use] : lanes_) {
      if (use.capacity > 0) least = std::min(least, use.capacity / use.times);
    }
    return least;
  }

 private:
  struct Use {
    double capacity = 0;
    int times = 0;
  };

  void cross(const Lane& lane, std::optional<GBps> capacity) {
    Use& use = lanes_[lane];
    use.capacity = capacity ? capacity->value : 0;
    ++use.times;
  }

  bool send_direct(std::uint32_t from, std::uint32_t to) {
    const NodeRef low = gpu(std::min(from, to)), high = gpu(std::max(from, to));
    for (const Link& link : topology_.links()) {
      if (link.a != low || link.b != high) continue;
      cross({low, high, from < to}, link.rate.bandwidth);
      return true;
    }
    return false;
  }

  double to_switches(std::uint32_t index) const {
    double sum = 0;
    for (const Link& link : topology_.links()) {
      if (link.a == gpu(index) && link.b.kind == NodeKind::nvswitch) {
        sum += link.rate.bandwidth->value;
      }
    }
    return sum;
  }

  bool send_switched(std::uint32_t from, std::uint32_t to) {
    const double up = to_switches(from), down = to_switches(to);
    if (up == 0 || down == 0) return false;
    cross({gpu(from), nvswitch(0), true}, GBps{up});
    cross({gpu(to), nvswitch(0), false}, GBps{down});
    return true;
  }

  std::vector<NodeRef> way_up(std::uint32_t index) const {
    std::vector<NodeRef> way{gpu(index)};
    for (auto parent = topology_.gpus()[index].pci.parent;
         parent && parent->kind == NodeKind::bridge;
         parent = topology_.bridges()[parent->index].pci.parent) {
      way.push_back(*parent);
    }
    return way;
  }

  void send_pcie(std::uint32_t from, std::uint32_t to) {
    auto up = way_up(from), down = way_up(to);
    while (!up.empty() && !down.empty() && up.back() == down.back()) {
      up.pop_back();
      down.pop_back();
    }
    for (const NodeRef node : up) cross({node, node, true}, topology_.pci(node).uplink.bandwidth);
    for (const NodeRef node : down) {
      cross({node, node, false}, topology_.pci(node).uplink.bandwidth);
    }
  }

  const Topology& topology_;
  std::map<Lane, Use> lanes_;
};

double rate_of(const Topology& topology, const std::vector<Ring>& rings) {
  Traffic traffic(topology);
  for (const Ring& ring : rings) {
    for (std::size_t i = 0; i < ring.gpus.size(); ++i) {
      traffic.send(ring.gpus[i], ring.gpus[(i + 1) % ring.gpus.size()]);
    }
  }
  return traffic.rate();
}

double best_of_all_rings(const Topology& topology) {
  auto order = all_gpus(topology);
  double best = 0;
  do {
    best = std::max(best, rate_of(topology, {{order, {}}}));
  } while (std::next_permutation(order.begin() + 1, order.end()));
  return best;
}

bool visits_all_once(const Ring& ring, std::size_t gpus) {
  const std::set<std::uint32_t> seen(ring.gpus.begin(), ring.gpus.end());
  return ring.gpus.size() == gpus && seen.size() == gpus && *seen.rbegin() == gpus - 1;
}

const std::vector<std::string>& machines() {
  static const std::vector<std::string> kMachines{
      "2 gpus",
      "3 gpus, pcie gen4 x8",
      "2 packages, 5 gpus, pcie gen4 x16",
      "8 gpus, nvswitch",
      "2 packages, 8 gpus, 1 nic/gpu, nvswitch x12, pcie gen4 x16",
      "2 packages, 4 switches, 2 gpus/switch, nvlink cube, pcie gen3 x16",
      "2 packages, 8 gpus, pcie gen3 x16",
      "2 packages, 4 switches, 2 gpus/switch, 1 nic/switch, pcie gen4 x16",
      "2 packages, 2 switches, 4 gpus/switch, pcie gen5 x16",
      "2 packages, 4 gpus, nvlink pairs x12, pcie gen4 x16",
      "4 gpus, nvlink mesh x4",
      "2 packages, 8 gpus, xgmi mesh",
      "6 gpus, nvlink ring x2, pcie gen4 x16",
  };
  return kMachines;
}

TEST(Rings, AreAsGoodAsTheBestOfAllOrders) {
  for (const std::string& text : machines()) {
    const Topology topology = described(text);
    const RingPlan plan = plan_rings(topology);
    EXPECT_TRUE(plan.best_is_exact) << text;
    EXPECT_TRUE(visits_all_once(plan.best, topology.gpus().size())) << text;
    ASSERT_TRUE(plan.best.bandwidth.has_value()) << text;
    EXPECT_NEAR(plan.best.bandwidth->value, best_of_all_rings(topology), 1e-6) << text;
    EXPECT_NEAR(plan.best.bandwidth->value, rate_of(topology, {plan.best}), 1e-6) << text;
  }
}

TEST(Rings, SideBySideHaveTheBandwidthTheyClaimWithinTheBounds) {
  for (const std::string& text : machines()) {
    const Topology topology = described(text);
    const RingPlan plan = plan_rings(topology);
    ASSERT_TRUE(plan.bandwidth.has_value()) << text;
    for (const Ring& ring : plan.channels) {
      EXPECT_TRUE(visits_all_once(ring, topology.gpus().size())) << text;
      EXPECT_NEAR(ring.bandwidth->value, rate_of(topology, plan.channels), 1e-6) << text;
    }
    EXPECT_GE(plan.bandwidth->value, plan.best.bandwidth->value - 1e-6) << text;
    const BandwidthBounds bounds = bandwidth_bounds(topology);
    ASSERT_TRUE(bounds.all_gather && bounds.all_reduce) << text;
    EXPECT_LE(plan.bandwidth->value, bounds.all_gather->value * (1 + 1e-6)) << text;
    EXPECT_LE(plan.bandwidth->value, bounds.all_reduce->value * (1 + 1e-6)) << text;
  }
}

TEST(Rings, UseAllNvlinksOfACubeMesh) {
  const Topology cube = described("2 packages, 4 switches, 2 gpus/switch, nvlink cube");
  const RingPlan plan = plan_rings(cube);
  EXPECT_EQ(plan.fabric, GpuFabric::partial);
  EXPECT_DOUBLE_EQ(plan.best.bandwidth->value, 50) << "all hops over two NVLinks";
  EXPECT_DOUBLE_EQ(plan.bandwidth->value, 150) << "six NVLinks of each GPU";
  EXPECT_NEAR(bandwidth_bounds(cube).all_gather->value, 150, 1e-6);
}

TEST(Rings, UseAllLinksOfAMesh) {
  const Topology four = described("4 gpus, nvlink mesh x4");
  EXPECT_EQ(plan_rings(four).fabric, GpuFabric::mesh);
  EXPECT_DOUBLE_EQ(plan_rings(four).bandwidth->value, 300);
  const Topology eight = described("8 gpus, xgmi mesh");
  EXPECT_DOUBLE_EQ(plan_rings(eight).bandwidth->value, 448) << "seven links of 64 GB/s";
}

TEST(Rings, NeedOneRingThroughNvswitches) {
  const Topology hgx = described("2 packages, 16 gpus, nvswitch x6");
  const RingPlan plan = plan_rings(hgx);
  EXPECT_EQ(plan.fabric, GpuFabric::nvswitch);
  EXPECT_THAT(plan.channels, SizeIs(1));
  EXPECT_DOUBLE_EQ(plan.bandwidth->value, 150);
  EXPECT_TRUE(plan.best_is_exact);
  EXPECT_FALSE(plan.bandwidth_is_bound);
}

TEST(Rings, CrossPackagesOnce) {
  const RingPlan plan = plan_rings(described("2 packages, 8 gpus, pcie gen4 x16"));
  EXPECT_EQ(plan.fabric, GpuFabric::pcie);
  EXPECT_THAT(plan.best.gpus, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_TRUE(plan.bandwidth_is_bound) << "the bandwidth between packages is unknown";
}

TEST(Rings, AreFoundForAPartOfTheGpus) {
  const Topology cube = described("8 gpus, nvlink cube");
  const std::vector<std::uint32_t> visible{6, 0, 2, 4};
  const RingPlan plan = plan_rings(cube, visible);
  EXPECT_EQ(plan.best.gpus.front(), 6U);
  EXPECT_EQ(std::set(plan.best.gpus.begin(), plan.best.gpus.end()),
            std::set(visible.begin(), visible.end()));
}

TEST(Rings, OfFewGpusAreEmptyOrGo) {
  const RingPlan none = plan_rings(described("1 nic"));
  EXPECT_THAT(none.best.gpus, IsEmpty());
  EXPECT_EQ(none.fabric, GpuFabric::none);
  const RingPlan one = plan_rings(described("1 gpu"));
  EXPECT_THAT(one.best.gpus, ElementsAre(0));
  EXPECT_THAT(one.channels, IsEmpty());
  EXPECT_FALSE(bandwidth_bounds(described("1 gpu")).all_gather);
}

TEST(Rings, OfMoreThanAnyHostHasAreNotSought) {
  const Topology many = described("129 gpus, 8 switches, nvswitch");
  EXPECT_EQ(plan_rings(many).best.gpus.size(), 129U);
  EXPECT_EQ(plan_rings(many).fabric, GpuFabric::unknown);
  EXPECT_FALSE(plan_rings(many).best_is_exact);
  EXPECT_FALSE(bandwidth_bounds(many).all_gather);
  EXPECT_TRUE(plan_rings(described("128 gpus, 8 switches, nvswitch")).best_is_exact);
}

/// A host drawn from a seed, whose links have various rates: uplinks above one or two levels of
/// switches, and NVLink between some GPUs.
Topology drawn(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto pick = [&](std::uint32_t most) { return static_cast<std::uint32_t>(random() % most); };
  Machine machine = plain_machine();
  const std::uint32_t switches = 1 + pick(3), gpus = 2 + pick(4);
  std::uint8_t bus = 1;
  for (std::uint32_t i = 0; i < switches; ++i) {
    const NodeRef above = i > 0 && pick(2) == 0 ? bridge(i - 1) : kRoot;
    machine.bridges.emplace_back().pci = function(bus++, above, 1 + pick(40));
  }
  for (std::uint32_t i = 0; i < gpus; ++i) {
    machine.gpus.emplace_back().pci = function(bus++, bridge(pick(switches)), 1 + pick(40));
  }
  for (std::uint32_t a = 0; a < gpus; ++a) {
    for (std::uint32_t b = a + 1; b < gpus; ++b) {
      if (pick(3) > 0) continue;
      machine.links.push_back(
          {gpu(a), gpu(b), LinkKind::nvlink, {GBps{41.0 + pick(60)}, Origin::read, {}, {}}});
    }
  }
  return value_of(Topology::create(machine));
}

TEST(Rings, OfMachinesByChanceAreTheBestToo) {
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    const Topology topology = drawn(seed);
    const RingPlan plan = plan_rings(topology);
    ASSERT_TRUE(plan.best_is_exact && plan.bandwidth) << seed;
    const double best = best_of_all_rings(topology);
    ASSERT_NEAR(plan.best.bandwidth->value, best, 1e-6) << seed;
    ASSERT_NEAR(plan.channels.front().bandwidth->value, rate_of(topology, plan.channels), 1e-6)
        << seed;
    const BandwidthBounds bounds = bandwidth_bounds(topology);
    ASSERT_LE(plan.bandwidth->value, bounds.all_gather->value * (1 + 1e-6)) << seed;
    ASSERT_LE(plan.bandwidth->value, bounds.all_reduce->value * (1 + 1e-6)) << seed;
  }
}

// All rates differ, so the search cannot try all of them.
TEST(Rings, AreSoughtAtAFewOfManyRates) {
  Machine machine = described("40 gpus, 4 switches").machine();
  for (std::uint32_t a = 0; a < 40; ++a) {
    for (std::uint32_t b = a + 1; b < 40; ++b) {
      const double rate = 100 + a * 1.25 + b * 0.0625;
      machine.links.push_back(
          {gpu(a), gpu(b), LinkKind::nvlink, {GBps{rate}, Origin::read, {}, {}}});
    }
  }
  const auto topology = value_of(Topology::create(machine));
  const RingPlan plan = plan_rings(topology);
  EXPECT_TRUE(visits_all_once(plan.best, 40));
  EXPECT_GT(plan.best.bandwidth->value, 100);
}

TEST(Rings, LeaveNvlinkWherePcieCarriesMore) {
  const RingPlan plan = plan_rings(described("8 gpus, nvlink ring, pcie gen5 x16"));
  EXPECT_EQ(plan.fabric, GpuFabric::pcie);
  EXPECT_GE(plan.bandwidth->value, plan_rings(described("8 gpus")).bandwidth->value);
}

// NVLink connects pairs of GPUs. The rate of PCIe between the pairs is unknown.
TEST(Rings, AreNotManyOverWhatNobodyTells) {
  Machine machine = described("4 gpus, nvlink pairs x4").machine();
  for (Gpu& each : machine.gpus) each.pci.uplink = {};
  const auto topology = value_of(Topology::create(machine));
  const RingPlan plan = plan_rings(topology);
  EXPECT_THAT(plan.channels, SizeIs(1));
  EXPECT_EQ(plan.bandwidth, GBps{100});
  EXPECT_TRUE(plan.bandwidth_is_bound);
}

TEST(Rings, SayThatTheyCrossWhatNobodyTells) {
  EXPECT_TRUE(plan_rings(described("2 packages, 2 gpus")).bandwidth_is_bound)
      << "the bandwidth between packages is unknown";
  EXPECT_FALSE(plan_rings(described("2 gpus")).bandwidth_is_bound);
  Machine boards = described("2 packages, 4 gpus, nvswitch x6").machine();
  boards.nvswitches.push_back(boards.nvswitches.front());
  ++boards.nvswitches.back().pci.address.bus;
  boards.links[2].b = boards.links[3].b = nvswitch(1);
  const auto topology = value_of(Topology::create(boards));
  EXPECT_EQ(plan_rings(topology).fabric, GpuFabric::nvswitch);
  EXPECT_TRUE(plan_rings(topology).bandwidth_is_bound) << "between the two boards";
}

// If no link has a known bandwidth, the ring has an order, but no bandwidth.
TEST(Rings, OfUnknownLinksHaveNoBandwidth) {
  const Topology vm = golden("flat_vm.v2.xml");
  const RingPlan plan = plan_rings(vm);
  EXPECT_TRUE(visits_all_once(plan.best, vm.gpus().size()));
  EXPECT_FALSE(plan.bandwidth.has_value());
  EXPECT_TRUE(plan.bandwidth_is_bound);
  EXPECT_FALSE(bandwidth_bounds(vm).all_gather);
}

TEST(Rings, BelongToTheMachineNotToItsOrder) {
  // The same pairs, but the links are listed in another order, so that the nearer GPU is not the
  // next one.
  const Topology pairs = described("4 gpus, nvlink pairs x4, pcie gen3 x8");
  Machine swapped = pairs.machine();
  swapped.links = {{gpu(0), gpu(2), LinkKind::nvlink, pairs.links()[0].rate},
                   {gpu(1), gpu(3), LinkKind::nvlink, pairs.links()[0].rate}};
  const auto other = value_of(Topology::create(swapped));
  EXPECT_EQ(plan_rings(other).bandwidth, plan_rings(pairs).bandwidth);
  EXPECT_THAT(plan_rings(other).best.gpus, ElementsAre(0, 2, 1, 3));
}

TEST(Bounds, OfATwoLevelTreeAreAboveItsRing) {
  // There are four GPUs below each of two switches. A ring moves 7/8 of the data over the uplink of
  // each switch. The minimum is 4/8.
  const Topology host = described("2 packages, 2 switches, 4 gpus/switch, pcie gen4 x16");
  const double link = host.gpus()[0].pci.uplink.bandwidth->value;
  EXPECT_DOUBLE_EQ(plan_rings(host).bandwidth->value, link);
  EXPECT_NEAR(bandwidth_bounds(host).all_gather->value, link, 1e-6) << "a GPU's own link";

  Machine narrow = host.machine();
  for (Bridge& bridge : narrow.bridges) bridge.pci.uplink = pcie_rate(16, 8);
  const auto topology = value_of(Topology::create(narrow));
  EXPECT_NEAR(plan_rings(topology).bandwidth->value, link / 2, 1e-6);
  EXPECT_NEAR(bandwidth_bounds(topology).all_gather->value, link / 2 * 7 / 4, 1e-6);
  EXPECT_NEAR(bandwidth_bounds(topology).all_reduce->value, link / 2 * 7 / 4, 1e-6);
}

}  // namespace
}  // namespace xylem::topology::test
