// SPDX-License-Identifier: Apache-2.0
//
// Runs the mixed programs with ranks that are threads, so that the thread sanitizer can detect
// races. The tests mixed_* run the same programs with ranks that are processes.
#include "mixed/rank.h"
#include "support/made_up_devices.h"
#include "support/ranks.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>

namespace xylem::test {
namespace {

/// The transport, the number of ranks, the fault, and whether some buffers are in the memory of a
/// made-up device.
using Case = std::tuple<const char*, std::uint32_t, const char*, bool>;

/// A made-up device for mixed programs. The test accesses its memory through the mapping that the
/// device uses.
class MadeUpDevice final : public mixed::Device {
 public:
  explicit MadeUpDevice(DeviceMemory& memory) : memory_(memory) {}
  Memory memory() const noexcept override { return kDevice; }
  mixed::Room take(std::uint64_t bytes,
                   Kind /*kind*/,
                   std::uint32_t /*stream*/,
                   std::uint32_t /*last*/) override {
    const auto keep = [](std::byte*) {};
    std::byte* const address = memory_.allocate(bytes);
    return {{address, keep}, {memory_.seen_by_device(address), keep}, bytes};
  }

 private:
  DeviceMemory& memory_;
};

class MixedThreads : public testing::TestWithParam<Case> {};

TEST_P(MixedThreads, EveryElementIsRightAndErrorsAreThoseOfTheFault) {
  const auto& [transport, ranks, fault, uses_devices] = GetParam();
  // A program with a fault takes longer, so there is only one.
  const std::uint64_t programs = *fault == '\0' ? 4 : 1;
  for (std::uint64_t seed = 1; seed <= programs; ++seed) {
    RankOptions options{.size = ranks, .transport = transport, .seed = seed};
    options.environment["XYLEM_TIMEOUT"] = "60s";
    MadeUpDevices devices(ranks, /*fault_after=*/0, std::size_t{512} << 20);
    if (uses_devices) options.devices = [&](std::uint32_t rank) { return devices.of_rank(rank); };
    run_ranks(options, [&](Runtime& runtime, MemoryHub&) {
      MadeUpDevice device(devices.memory(runtime.rank()));
      mixed::Setting setting;
      setting.seed = 1000 * seed + ranks;
      setting.calls = 80;
      setting.fault = fault;
      setting.victim = ranks / 2;
      if (uses_devices) setting.device = &device;
      EXPECT_EQ(mixed::Rank(runtime, setting).run(), "") << "rank " << runtime.rank();
    });
  }
}

std::string label(const testing::TestParamInfo<Case>& row) {
  const auto& [transport, ranks, fault, uses_devices] = row.param;
  return std::string(transport) + "_" + std::to_string(ranks) + "_" +
         (*fault == '\0' ? "none" : fault) + (uses_devices ? "_devices" : "");
}

INSTANTIATE_TEST_SUITE_P(WithoutFaults,
                         MixedThreads,
                         testing::Combine(testing::Values("loopback", "shm", "tcp"),
                                          testing::Values(1U, 2U, 5U),
                                          testing::Values(""),
                                          testing::Bool()),
                         label);
INSTANTIATE_TEST_SUITE_P(WithFaults,
                         MixedThreads,
                         testing::Combine(testing::Values("loopback", "shm", "tcp"),
                                          testing::Values(3U),
                                          testing::Values("abort", "mismatch", "leave"),
                                          testing::Bool()),
                         label);

}  // namespace
}  // namespace xylem::test
