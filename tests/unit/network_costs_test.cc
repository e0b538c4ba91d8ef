// SPDX-License-Identifier: Apache-2.0
//
// The costs between hosts that follow from made-up measurements.
#include "runtime/src/network_costs.h"

#include "xylem/collectives/cost_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <random>
#include <vector>

namespace xylem::runtime {
namespace {

using collectives::CostModel;
using testing::DoubleNear;
using testing::Each;
using testing::ElementsAre;

TEST(MeasuringBits, CoverAtMostFourRounds) {
  EXPECT_THAT(measuring_bits(1), ElementsAre());
  EXPECT_THAT(measuring_bits(2), ElementsAre(0));
  EXPECT_THAT(measuring_bits(5), ElementsAre(0, 1, 2));
  EXPECT_THAT(measuring_bits(16), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(measuring_bits(1024), ElementsAre(0, 3, 6, 9));
  EXPECT_EQ(measuring_partner(2, 0, 5), 3);
  EXPECT_EQ(measuring_partner(3, 1, 5), 1);
  EXPECT_FALSE(measuring_partner(4, 0, 5)) << "there is no host 5";
}

/// Samples of hosts, of which host h and host g send to each other at rate(h, g) while all pairs of
/// a round are busy.
std::vector<NetworkSample> measured(
    std::uint32_t hosts, const std::function<double(std::uint32_t, std::uint32_t)>& rate) {
  std::vector<NetworkSample> samples(hosts);
  const auto bits = measuring_bits(hosts);
  for (std::uint32_t host = 0; host < hosts; ++host) {
    samples[host] = {.half_trip_us = 20, .send_us = 6, .message_us = 4};
    for (std::size_t round = 0; round < bits.size(); ++round) {
      if (const auto partner = measuring_partner(host, bits[round], hosts)) {
        samples[host].host_GBps[round] = rate(host, *partner);
      }
    }
    samples[host].flow_GBps = std::ranges::max(samples[host].host_GBps);
  }
  return samples;
}

/// The model with two ranks on each of these hosts, on the same rail or on one each.
CostModel model_of(std::span<const NetworkSample> samples, std::uint32_t rails = 1) {
  CostModel model = collectives::assumed_costs();
  std::vector<std::uint32_t> rail_of;
  for (std::uint32_t rank = 0; rank < 2 * samples.size(); ++rank) {
    model.host.push_back(rank / 2);
    rail_of.push_back(rank % rails);
  }
  set_network(model, samples, rail_of);
  return model;
}

TEST(NetworkCosts, DivideARoundTrip) {
  const CostModel model = model_of(measured(4, [](auto, auto) { return 0.12; }));
  EXPECT_EQ(model.remote_send_us, 6);
  EXPECT_EQ(model.remote_receive_us, 4);
  EXPECT_EQ(model.remote.alpha_us, 10);
  EXPECT_EQ(model.remote.bandwidth_GBps, 0.12);
}

TEST(NetworkCosts, OfEqualHostsHaveOnePortForEach) {
  for (const std::uint32_t hosts : {2U, 3U, 4U, 7U, 16U, 40U}) {
    const CostModel model = model_of(measured(hosts, [](auto, auto) { return 0.12; }));
    ASSERT_EQ(model.network.size(), 1U) << hosts;
    EXPECT_EQ(model.network[0].port, model.host);
    EXPECT_THAT(model.network[0].rate_GBps, Each(0.12));
  }
}

TEST(NetworkCosts, OfHostsWithTwoRailsHaveOnePortForEachRail) {
  const CostModel model = model_of(measured(3, [](auto, auto) { return 0.24; }), 2);
  EXPECT_THAT(model.network[0].port, ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(model.network[0].rate_GBps, Each(0.12));
}

TEST(NetworkCosts, SeeASlowHost) {
  const auto rate = [](std::uint32_t a, std::uint32_t b) {
    return a == 2 || b == 2 ? 0.012 : 0.12;
  };
  const CostModel model = model_of(measured(4, rate));
  ASSERT_EQ(model.network.size(), 1U) << "it is no trunk";
  EXPECT_THAT(model.network[0].rate_GBps, ElementsAre(0.12, 0.12, 0.012, 0.12));
  // Only a pair: which of the two is slow cannot be seen.
  EXPECT_THAT(model_of(measured(2, [](auto, auto) { return 0.012; })).network[0].rate_GBps,
              Each(0.012));
}

TEST(NetworkCosts, SeeATrunk) {
  // Hosts 0 to 3 and 4 to 7 are joined by the rate of one host.
  const auto rate = [](std::uint32_t a, std::uint32_t b) { return a / 4 == b / 4 ? 0.12 : 0.03; };
  const CostModel model = model_of(measured(8, rate));
  ASSERT_EQ(model.network.size(), 2U);
  EXPECT_THAT(model.network[0].rate_GBps, Each(0.12));
  EXPECT_THAT(model.network[1].port, ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1));
  EXPECT_THAT(model.network[1].rate_GBps, Each(DoubleNear(0.12, 1e-9)));
}

TEST(NetworkCosts, SeeTwoHostsBehindOneLink) {
  // Hosts 0 and 1 are containers of one machine: they reach each other without its link.
  const auto rate = [](std::uint32_t a, std::uint32_t b) {
    return a / 2 == b / 2 ? (a < 2 ? 1.5 : 0.12) : a < 2 || b < 2 ? 0.06 : 0.12;
  };
  const CostModel model = model_of(measured(4, rate));
  ASSERT_EQ(model.network.size(), 2U);
  EXPECT_THAT(model.network[1].port, ElementsAre(0, 0, 0, 0, 1, 1, 1, 1));
  EXPECT_THAT(model.network[1].rate_GBps[0], DoubleNear(0.12, 1e-9));
}

TEST(NetworkCosts, ThatWereNotMeasuredStayAsTheyAre) {
  CostModel model = collectives::assumed_costs();
  model.host = {0, 1};
  const double before = model.remote.bandwidth_GBps;
  std::vector<NetworkSample> samples(2);
  set_network(model, samples, std::vector<std::uint32_t>(model.host.size()));
  EXPECT_TRUE(model.network.empty());
  EXPECT_EQ(model.remote_send_us, collectives::assumed_costs().remote_send_us);
  EXPECT_FALSE(is_measured(samples));
  samples[0].half_trip_us = samples[1].half_trip_us = 90'000;  // Too slow to measure rates.
  set_network(model, samples, std::vector<std::uint32_t>(model.host.size()));
  EXPECT_TRUE(model.network.empty());
  EXPECT_EQ(model.remote.alpha_us, 90'000);
  EXPECT_EQ(model.remote.bandwidth_GBps, before);
  EXPECT_FALSE(is_measured(samples));
  EXPECT_TRUE(is_measured(std::vector<NetworkSample>(1)));
}

// The samples come from other ranks, so they may be anything.
TEST(NetworkCosts, OfImpossibleSamplesAreUsable) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  std::mt19937_64 random(7);
  const double values[] = {std::nan(""), kInfinite, -kInfinite, -1, 0, 1e-300, 1e300, 0.12, 20};
  const auto draw = [&] { return values[random() % std::size(values)]; };
  for (int turn = 0; turn < 2000; ++turn) {
    std::vector<NetworkSample> samples(1 + random() % 9);
    for (NetworkSample& sample : samples) {
      sample = {draw(), draw(), draw(), draw(), {draw(), draw(), draw(), draw()}};
    }
    const CostModel model = model_of(samples);
    for (const double cost :
         {model.remote.alpha_us, model.remote_send_us, model.remote_receive_us}) {
      EXPECT_TRUE(std::isfinite(cost) && cost >= 0);
    }
    EXPECT_TRUE(std::isfinite(model.remote.bandwidth_GBps) && model.remote.bandwidth_GBps > 0);
    for (const auto& level : model.network) {
      EXPECT_EQ(level.port.size(), model.host.size());
      for (const std::uint32_t port : level.port) EXPECT_LT(port, level.rate_GBps.size());
      for (const double rate : level.rate_GBps) EXPECT_TRUE(std::isfinite(rate) && rate > 0);
    }
  }
}

// A host whose partner does not exist in any round has no rate of its own.
TEST(NetworkCosts, OfAHostWithoutPartnersAreTheUsualOnes) {
  auto samples = measured(3, [](auto, auto) { return 0.12; });
  samples[2].host_GBps = {};
  samples[2].half_trip_us = 0;
  const CostModel model = model_of(samples);
  EXPECT_THAT(model.network[0].rate_GBps, Each(0.12));
}

}  // namespace
}  // namespace xylem::runtime
