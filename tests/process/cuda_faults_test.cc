// SPDX-License-Identifier: Apache-2.0
//
// Faults while ranks, which are processes, make calls on device memory: a call of the driver fails,
// a device is lost, or a process is killed. Every call must end soon, with a correct result or an
// error, and the streams that wait for it must continue.
#include "support/sanitizer.h"
#include "support/subprocess.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace xylem::test {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;
using testing::Not;

// ---- the driver fails ----

struct Fault {
  const char* name;
  const char* code;          ///< CUDA error code, as a number.
  std::uint32_t victim = 0;  ///< The rank at which the fault happens.
};

class DriverFault : public testing::TestWithParam<Fault> {};

TEST_P(DriverFault, EndsCallsWithAResultOrAnError) {
  const auto& [name, code, victim] = GetParam();
  // Numbers of the calls that fail, for each function. XYLEM_TEST_CALLS=1,2,3 selects others.
  const char* const wanted = std::getenv("XYLEM_TEST_CALLS");
  const char* const usual = kHasSanitizer ? "1,4" : "1,2,5,30";
  const TemporaryDirectory directory;
  auto ranks = start_ranks(
      directory, 2, "cuda_fault_rank",
      {std::to_string(victim), code, wanted != nullptr ? wanted : usual, directory.path()},
      {{"XYLEM_LOG", "off"}, {"XYLEM_SLICE", "32K"}, {"XYLEM_TIMEOUT", "20s"}});
  for (std::uint32_t rank = 0; rank < ranks.size(); ++rank) {
    const Exit exit = ranks[rank].wait(seconds(kHasSanitizer ? 300 : 200));
    EXPECT_EQ(exit.status, 0) << exit.output;
    if (rank != victim || wanted != nullptr) continue;
    // The program calls each of these functions, so the planned faults have happened.
    for (const char* const function :
         {"cuCtxPushCurrent_v2", "cuPointerGetAttributes", "cuIpcGetMemHandle",
          "cuIpcOpenMemHandle_v2", "cuMemAlloc_v2", "cuMemFree_v2", "cuMemHostAlloc",
          "cuMemcpyAsync", "cuLaunchKernel", "cuStreamWriteValue64_v2", "cuStreamWaitValue64_v2",
          "cuStreamQuery", "cuStreamSynchronize", "cuStreamBatchMemOp_v2",
          "cuStreamGetCaptureInfo_v2", "cuMemsetD32Async", "cuDeviceGetUuid_v2",
          "cuMemHostRegister_v2", "cuStreamGetId"}) {
      EXPECT_THAT(exit.output, Not(HasSubstr(std::string("not called: ") + function + "\n")));
    }
  }
}

constexpr const char* kUnknown = "999";
constexpr const char* kDeviceLost = "719";
constexpr const char* kOutOfMemory = "2";
constexpr const char* kNotSupported = "801";

INSTANTIATE_TEST_SUITE_P(Faults,
                         DriverFault,
                         testing::Values(Fault{"unknown", kUnknown, 0},
                                         Fault{"device_lost_at_0", kDeviceLost, 0},
                                         Fault{"device_lost_at_1", kDeviceLost, 1},
                                         Fault{"out_of_memory", kOutOfMemory, 1},
                                         Fault{"not_supported", kNotSupported, 0}),
                         [](const auto& tested) { return std::string(tested.param.name); });

// ---- a process is killed ----

class DeathBesideStreams : public testing::TestWithParam<const char*> {};

TEST_P(DeathBesideStreams, LetsThemGoOnAndItsMemoryIsNotReadAgain) {
  constexpr std::uint32_t kRanks = 3;
  std::uint32_t number = 0;
  for (const int phase : {0, 1, 3, 12, 60}) {
    for (const char* const count : {"16", "300000"}) {
      const TemporaryDirectory directory;
      const std::uint32_t victim = number++ % kRanks;
      auto ranks = start_ranks(directory, kRanks, "cuda_death_rank",
                               {GetParam(), std::to_string(victim), std::to_string(phase), count},
                               {{"XYLEM_LOG", "off"},
                                {"FAKE_CUDA_DEVICES", "3"},
                                {"FAKE_CUDA_SEED", std::to_string(number)}});
      for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
        const Exit exit = ranks[rank].wait(seconds(60));
        EXPECT_EQ(exit.status, rank == victim ? 128 + 9 : 0)
            << "phase " << phase << ", " << count << " words, victim " << victim << ": "
            << exit.output;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Operations,
                         DeathBesideStreams,
                         testing::Values("all_reduce",
                                         "all_gather",
                                         "reduce_scatter",
                                         "all_to_all",
                                         "broadcast",
                                         "send_recv",
                                         "mesh_all_reduce",
                                         "mesh_broadcast",
                                         "mesh_all_to_all"),
                         [](const auto& tested) { return std::string(tested.param); });

}  // namespace
}  // namespace xylem::test
