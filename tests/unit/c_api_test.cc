// SPDX-License-Identifier: Apache-2.0
//
// The C interface: every function, usually in a job of one rank; handles, structs that contain
// their size, and errors.
#include "xylem/base/version.h"
#include "xylem/xylem_c.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StrEq;

struct Free {
  void operator()(xylem_runtime* runtime) const { xylem_runtime_destroy(runtime); }
  void operator()(xylem_work* work) const { xylem_work_release(work); }
};
using Runtime = std::unique_ptr<xylem_runtime, Free>;
using Work = std::unique_ptr<xylem_work, Free>;

xylem_options one_rank() {
  xylem_options options{};
  options.struct_size = sizeof options;
  options.size = 1;
  options.log = "error";
  return options;
}

Runtime start(const xylem_options& options) {
  xylem_runtime* runtime = nullptr;
  EXPECT_EQ(xylem_runtime_create(&options, &runtime), XYLEM_OK) << xylem_last_error();
  return Runtime(runtime);
}

/// Starts a job, which must fail and must not return a handle. Returns the error code.
xylem_status refused(const xylem_options& options) {
  auto* runtime = reinterpret_cast<xylem_runtime*>(1);
  const xylem_status status = xylem_runtime_create(&options, &runtime);
  EXPECT_EQ(runtime, nullptr);
  return status;
}

/// All tests that do not shut down their job share one job of one rank.
class CApi : public testing::Test {
 protected:
  static void SetUpTestSuite() { runtime = start(one_rank()).release(); }
  static void TearDownTestSuite() {
    EXPECT_EQ(xylem_runtime_shutdown(runtime), XYLEM_OK) << xylem_last_error();
    xylem_runtime_destroy(runtime);
  }
  void SetUp() override {
    ASSERT_NE(runtime, nullptr);
    world = xylem_runtime_world(runtime);
  }

  xylem_communicator* duplicate() {
    xylem_communicator* result = nullptr;
    EXPECT_EQ(xylem_communicator_duplicate(world, &result), XYLEM_OK) << xylem_last_error();
    return result;
  }
  /// Posts a receive into `output`.
  Work receive(xylem_communicator* comm, std::uint32_t source, std::uint32_t tag) {
    xylem_work* begun = nullptr;
    EXPECT_EQ(xylem_recv(comm, output.data(), 3, XYLEM_FLOAT32, source, tag, &begun), XYLEM_OK);
    EXPECT_NE(begun, nullptr);
    return Work(begun);
  }
  /// Expects that a call has succeeded, and that `output` has these values.
  void expect_output(xylem_status status, const std::array<float, 3>& expected) {
    EXPECT_EQ(status, XYLEM_OK) << xylem_last_error();
    EXPECT_EQ(output, expected);
    output = {};
  }

  static xylem_runtime* runtime;
  xylem_communicator* world = nullptr;
  std::array<float, 3> input{1, 2, 3};
  std::array<float, 3> output{};
  const void* const from = input.data();
  void* const to = output.data();
};
xylem_runtime* CApi::runtime = nullptr;

TEST(CValues, VersionIsThatOfTheHeaders) { EXPECT_STREQ(xylem_version(), XYLEM_VERSION); }

TEST(CValues, EveryStatusHasItsName) {
  EXPECT_STREQ(xylem_status_name(XYLEM_OK), "ok");
  EXPECT_STREQ(xylem_status_name(XYLEM_PEER_LOST), "peer_lost");
  EXPECT_STREQ(xylem_status_name(XYLEM_INTERNAL), "internal");
  EXPECT_STREQ(xylem_status_name(XYLEM_INTERNAL + 1), "unknown");
  EXPECT_STREQ(xylem_status_name(-1), "unknown");
}

TEST(CValues, EveryTypeHasItsSize) {
  EXPECT_EQ(xylem_data_type_size(XYLEM_BOOL), 1U);
  EXPECT_EQ(xylem_data_type_size(XYLEM_BFLOAT16), 2U);
  EXPECT_EQ(xylem_data_type_size(XYLEM_FLOAT32), 4U);
  EXPECT_EQ(xylem_data_type_size(XYLEM_UINT64), 8U);
  EXPECT_EQ(xylem_data_type_size(XYLEM_FLOAT8_E5M2), 1U);
  EXPECT_EQ(xylem_data_type_size(XYLEM_FLOAT8_E5M2 + 1), 0U);
  EXPECT_EQ(xylem_data_type_size(-1), 0U);
}

TEST(CMemory, IsAllocatedAndGivenBackOnce) {
  void* memory = nullptr;
  ASSERT_EQ(xylem_allocate(1000, &memory), XYLEM_OK);
  ASSERT_NE(memory, nullptr);
  EXPECT_EQ(static_cast<const char*>(memory)[999], 0);
  EXPECT_EQ(xylem_deallocate(memory), XYLEM_OK);
  EXPECT_EQ(xylem_deallocate(memory), XYLEM_INVALID_ARGUMENT);
  EXPECT_EQ(xylem_allocate(0, &memory), XYLEM_INVALID_ARGUMENT);
  EXPECT_EQ(memory, nullptr);
  EXPECT_EQ(xylem_allocate(8, nullptr), XYLEM_INVALID_ARGUMENT);
}

TEST(CStart, WithoutALauncherItIsAJobOfOne) {
  for (const char* variable : {"XYLEM_RANK", "XYLEM_SIZE", "RANK", "WORLD_SIZE",
                               "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK",
                               "PMI_SIZE", "PMI_PORT", "SLURM_STEP_ID", "SLURM_STEP_NODELIST"}) {
    unsetenv(variable);
  }
  xylem_runtime* created = nullptr;
  ASSERT_EQ(xylem_runtime_create(nullptr, &created), XYLEM_OK) << xylem_last_error();
  const Runtime runtime(created);
  EXPECT_EQ(xylem_runtime_rank(created), 0U);
  EXPECT_EQ(xylem_runtime_size(created), 1U);
  EXPECT_EQ(xylem_runtime_local_rank(created), 0U);
  EXPECT_EQ(xylem_runtime_local_size(created), 1U);
  EXPECT_STREQ(xylem_runtime_launcher(created), "none");
  EXPECT_STRNE(xylem_runtime_host(created, 0), "");
  EXPECT_EQ(xylem_runtime_host(created, 1), nullptr);
}

TEST(CStart, RefusesOptionsWithoutTheirSize) {
  xylem_options options = one_rank();
  options.struct_size = 0;
  EXPECT_EQ(refused(options), XYLEM_INVALID_ARGUMENT);
  EXPECT_THAT(xylem_last_error(), HasSubstr("sizeof(xylem_options)"));
}

TEST(CStart, IgnoresWhatACallerWithAnOlderHeaderDoesNotHave) {
  xylem_options options = one_rank();
  options.struct_size = offsetof(xylem_options, rendezvous);
  options.transport = "carrier-pigeon";
  EXPECT_NE(start(options), nullptr);
}

TEST(CStart, TakesAndRefusesWhatANewerHeaderHas) {
  struct {
    xylem_options known;
    std::uint64_t added;
  } newer{one_rank(), 0};
  newer.known.struct_size = sizeof newer;
  EXPECT_NE(start(newer.known), nullptr) << "an added field that is not set changes nothing";
  newer.added = 1;
  EXPECT_EQ(refused(newer.known), XYLEM_UNSUPPORTED);
}

TEST(CStart, PassesOptionsOn) {
  xylem_options options = one_rank();
  options.transport = "carrier-pigeon";
  EXPECT_EQ(refused(options), XYLEM_INVALID_ARGUMENT);
  EXPECT_THAT(xylem_last_error(), HasSubstr("carrier-pigeon"));
  options = one_rank();
  options.require = "pigeons";
  EXPECT_EQ(refused(options), XYLEM_INVALID_ARGUMENT);
  EXPECT_THAT(xylem_last_error(), HasSubstr("XYLEM_REQUIRE \"pigeons\""));
  options = one_rank();
  options.rank = 1;
  EXPECT_EQ(refused(options), XYLEM_INVALID_ARGUMENT) << "rank 1 of 1";
  options.size = 0;
  EXPECT_EQ(refused(options), XYLEM_INVALID_ARGUMENT) << "a rank without a size";
}

TEST(CStart, NeedsAPlaceForTheHandle) {
  EXPECT_EQ(xylem_runtime_create(nullptr, nullptr), XYLEM_INVALID_ARGUMENT);
}

/// A store as a C program could write one.
struct SharedMap {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::string> values;

  static xylem_status set(void* context, const char* key, const void* value, size_t size) {
    auto& self = *static_cast<SharedMap*>(context);
    {
      const std::lock_guard lock(self.mutex);
      self.values[key].assign(static_cast<const char*>(value), size);
    }
    self.changed.notify_all();
    return XYLEM_OK;
  }
  static xylem_status get(
      void* context, const char* key, uint64_t timeout_ms, void* value, size_t* size) {
    auto& self = *static_cast<SharedMap*>(context);
    std::unique_lock lock(self.mutex);
    const auto there = [&] { return self.values.count(key) > 0; };
    if (!self.changed.wait_for(lock, std::chrono::milliseconds(timeout_ms), there))
      return XYLEM_TIMED_OUT;
    *size = self.values[key].copy(static_cast<char*>(value), XYLEM_STORE_VALUE_MAX);
    return XYLEM_OK;
  }
};

TEST(CStore, TwoRanksMeetThroughTheCallersOwn) {
  SharedMap map;
  const xylem_store store{sizeof store, &map, SharedMap::set, SharedMap::get};
  std::array<std::int64_t, 2> sums{};
  std::vector<std::thread> ranks;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      xylem_options options = one_rank();
      options.rank = rank;
      options.size = 2;
      options.store = &store;
      options.job = "c-api-store";
      options.start_timeout_ms = 30000;
      const Runtime runtime = start(options);
      if (runtime == nullptr) return;
      EXPECT_EQ(xylem_runtime_local_rank(runtime.get()), rank);
      EXPECT_EQ(xylem_runtime_local_size(runtime.get()), 2U);
      const std::int64_t mine = rank + 1;
      EXPECT_EQ(xylem_all_reduce(xylem_runtime_world(runtime.get()), &mine, &sums[rank], 1,
                                 XYLEM_INT64, XYLEM_SUM, nullptr),
                XYLEM_OK)
          << xylem_last_error();
      EXPECT_EQ(xylem_runtime_shutdown(runtime.get()), XYLEM_OK) << xylem_last_error();
    });
  }
  for (auto& rank : ranks) rank.join();
  EXPECT_THAT(sums, ElementsAre(3, 3));
}

TEST(CStore, ItsErrorsAreTheStarts) {
  const xylem_store store{
      sizeof store, nullptr,
      [](void*, const char*, const void*, size_t) -> xylem_status { return XYLEM_EXHAUSTED; },
      [](void*, const char*, uint64_t, void*, size_t*) -> xylem_status { return XYLEM_EXHAUSTED; }};
  xylem_options options = one_rank();
  options.size = 2;
  options.store = &store;
  options.start_timeout_ms = 10000;
  EXPECT_EQ(refused(options), XYLEM_EXHAUSTED);
  EXPECT_THAT(xylem_last_error(), HasSubstr("the store's"));
}

TEST(CStore, NeedsBothFunctions) {
  const xylem_store store{sizeof store, nullptr, nullptr, SharedMap::get};
  xylem_options options = one_rank();
  options.store = &store;
  EXPECT_EQ(refused(options), XYLEM_INVALID_ARGUMENT);
}

TEST_F(CApi, ReductionsOfOneRankAreItsInput) {
  const std::uint64_t counts[] = {3};
  expect_output(xylem_all_reduce(world, from, to, 3, XYLEM_FLOAT32, XYLEM_SUM, nullptr), input);
  expect_output(xylem_reduce(world, from, to, 3, XYLEM_FLOAT32, XYLEM_MAX, 0, nullptr), input);
  expect_output(xylem_reduce_scatter(world, from, to, 3, XYLEM_FLOAT32, XYLEM_AVG, nullptr), input);
  expect_output(xylem_reduce_scatter_v(world, from, to, counts, XYLEM_FLOAT32, XYLEM_MIN, nullptr),
                input);
}

TEST_F(CApi, PremultipliedSumsUseTheFactor) {
  const std::array<float, 3> tripled{3, 6, 9};
  const std::uint64_t counts[] = {3};
  expect_output(xylem_all_reduce_premul_sum(world, from, to, 3, XYLEM_FLOAT32, 3.0, nullptr),
                tripled);
  expect_output(xylem_reduce_premul_sum(world, from, to, 3, XYLEM_FLOAT32, 3.0, 0, nullptr),
                tripled);
  expect_output(xylem_reduce_scatter_premul_sum(world, from, to, 3, XYLEM_FLOAT32, 3.0, nullptr),
                tripled);
  expect_output(
      xylem_reduce_scatter_v_premul_sum(world, from, to, counts, XYLEM_FLOAT32, 3.0, nullptr),
      tripled);
  // This function has no argument for the factor, so the factor is 1.
  expect_output(xylem_all_reduce(world, from, to, 3, XYLEM_FLOAT32, XYLEM_PREMUL_SUM, nullptr),
                input);
}

TEST_F(CApi, MovesOfOneRankAreCopies) {
  const std::uint64_t counts[] = {3};
  expect_output(xylem_broadcast(world, from, to, 3, XYLEM_FLOAT32, 0, nullptr), input);
  expect_output(xylem_all_gather(world, from, to, 3, XYLEM_FLOAT32, nullptr), input);
  expect_output(xylem_all_gather_v(world, from, to, counts, XYLEM_FLOAT32, nullptr), input);
  expect_output(xylem_all_to_all(world, from, to, 3, XYLEM_FLOAT32, nullptr), input);
  expect_output(xylem_all_to_all_v(world, from, counts, to, counts, XYLEM_FLOAT32, nullptr), input);
  expect_output(xylem_gather(world, from, to, 3, XYLEM_FLOAT32, 0, nullptr), input);
  expect_output(xylem_scatter(world, from, to, 3, XYLEM_FLOAT32, 0, nullptr), input);
  EXPECT_EQ(xylem_barrier(world, nullptr), XYLEM_OK);
}

TEST_F(CApi, AReceiveFromAnySourceSaysWhose) {
  const Work work = receive(world, XYLEM_ANY_SOURCE, 7);
  xylem_work* const begun = work.get();
  EXPECT_FALSE(xylem_work_test(begun));
  EXPECT_EQ(xylem_work_status(begun), XYLEM_BUSY);
  EXPECT_EQ(xylem_work_wait_for(begun, 1000), XYLEM_TIMED_OUT);
  xylem_work_set_timeout(begun, UINT64_MAX);
  xylem_work_set_timeout(nullptr, 0);
  EXPECT_EQ(xylem_send(world, input.data(), 3, XYLEM_FLOAT32, 0, 7, nullptr), XYLEM_OK)
      << xylem_last_error();
  EXPECT_EQ(xylem_work_wait(begun), XYLEM_OK) << xylem_last_error();
  EXPECT_TRUE(xylem_work_test(begun));
  EXPECT_EQ(xylem_work_status(begun), XYLEM_OK);
  EXPECT_EQ(xylem_work_source(begun), 0U);
  EXPECT_EQ(output, input);
}

TEST_F(CApi, AReceiveSaysHowLongItsMessageIs) {
  const auto before = output;
  const Work work = receive(world, 0, 7);
  EXPECT_EQ(xylem_send(world, from, 2, XYLEM_FLOAT32, 0, 7, nullptr), XYLEM_OK)
      << xylem_last_error();
  EXPECT_EQ(xylem_work_wait(work.get()), XYLEM_OK) << xylem_last_error();
  EXPECT_EQ(xylem_work_count(work.get()), 2U);
  EXPECT_EQ(output[1], input[1]);
  EXPECT_EQ(output[2], before[2]);
}

TEST_F(CApi, WorkOutlivesItsHandle) {
  receive(world, 0, 8).reset();
  EXPECT_EQ(xylem_send(world, input.data(), 3, XYLEM_FLOAT32, 0, 8, nullptr), XYLEM_OK)
      << xylem_last_error();
  EXPECT_EQ(output, input);
}

TEST_F(CApi, BadArgumentsAreRefusedAtTheCall) {
  const auto expect_refused = [](xylem_status status, const char* text) {
    EXPECT_EQ(status, XYLEM_INVALID_ARGUMENT);
    EXPECT_THAT(xylem_last_error(), HasSubstr(text));
  };
  expect_refused(xylem_all_reduce(nullptr, from, to, 3, XYLEM_FLOAT32, XYLEM_SUM, nullptr),
                 "communicator is null");
  expect_refused(xylem_all_reduce(world, from, to, 3, 99, XYLEM_SUM, nullptr), "99");
  expect_refused(xylem_all_reduce(world, from, to, 3, 256 + XYLEM_FLOAT32, XYLEM_SUM, nullptr),
                 "267");
  expect_refused(xylem_all_reduce(world, from, to, 3, XYLEM_FLOAT32, -1, nullptr), "-1");
  expect_refused(xylem_all_reduce(world, from, to, 3, XYLEM_FLOAT32, XYLEM_PREMUL_SUM + 1, nullptr),
                 "9");
  const std::uint64_t counts[] = {3};
  for (const xylem_redop op : {42, 256 + XYLEM_SUM}) {
    const std::string value = std::to_string(op) + " is not a xylem_redop";
    expect_refused(xylem_all_reduce(world, from, to, 3, XYLEM_FLOAT32, op, nullptr), value.c_str());
    expect_refused(xylem_reduce(world, from, to, 3, XYLEM_FLOAT32, op, 0, nullptr), value.c_str());
    expect_refused(xylem_reduce_scatter(world, from, to, 3, XYLEM_FLOAT32, op, nullptr),
                   value.c_str());
    expect_refused(xylem_reduce_scatter_v(world, from, to, counts, XYLEM_FLOAT32, op, nullptr),
                   value.c_str());
  }
  expect_refused(xylem_all_reduce(world, from, to, 3, XYLEM_FLOAT32, XYLEM_BIT_AND, nullptr),
                 "float32");
  expect_refused(xylem_all_reduce(world, from, nullptr, 3, XYLEM_FLOAT32, XYLEM_SUM, nullptr),
                 "null");
  expect_refused(xylem_broadcast(world, from, to, 3, XYLEM_FLOAT32, 1, nullptr), "root 1");
  expect_refused(xylem_send(world, from, 3, XYLEM_FLOAT32, 1, 0, nullptr), "1");
  expect_refused(xylem_all_gather_v(world, from, to, nullptr, XYLEM_FLOAT32, nullptr),
                 "counts is null");
}

TEST_F(CApi, TotalsThatNoMemoryHoldsDoNotWrap) {
  constexpr std::size_t kHuge = std::numeric_limits<std::size_t>::max();
  EXPECT_EQ(xylem_all_gather(world, input.data(), output.data(), kHuge, XYLEM_FLOAT32, nullptr),
            XYLEM_INVALID_ARGUMENT);
  const std::uint64_t counts[] = {kHuge};
  EXPECT_EQ(xylem_all_gather_v(world, input.data(), output.data(), counts, XYLEM_FLOAT32, nullptr),
            XYLEM_INVALID_ARGUMENT);
}

TEST_F(CApi, ARefusedCallLeavesNoWork) {
  auto* work = reinterpret_cast<xylem_work*>(1);
  EXPECT_EQ(xylem_all_reduce(world, nullptr, output.data(), 3, XYLEM_FLOAT32, XYLEM_SUM, &work),
            XYLEM_INVALID_ARGUMENT);
  EXPECT_EQ(work, nullptr);
  EXPECT_EQ(xylem_work_wait(work), XYLEM_INVALID_ARGUMENT)
      << "an ignored error does not become a success";
  EXPECT_TRUE(xylem_work_test(work));
  xylem_work_release(work);
}

TEST_F(CApi, TheLastErrorIsOfOneThreadAndOfTheLastFailure) {
  EXPECT_EQ(xylem_send(world, input.data(), 3, XYLEM_FLOAT32, 17, 0, nullptr),
            XYLEM_INVALID_ARGUMENT);
  const std::string mine = xylem_last_error();
  EXPECT_THAT(mine, HasSubstr("17"));
  std::thread([] {
    EXPECT_STREQ(xylem_last_error(), "");
    EXPECT_EQ(xylem_last_error_peer(), XYLEM_NO_RANK);
    EXPECT_EQ(xylem_barrier(nullptr, nullptr), XYLEM_INVALID_ARGUMENT);
    EXPECT_THAT(xylem_last_error(), HasSubstr("communicator"));
  }).join();
  EXPECT_THAT(xylem_last_error(), StrEq(mine));
  EXPECT_EQ(xylem_barrier(world, nullptr), XYLEM_OK);
  EXPECT_THAT(xylem_last_error(), StrEq(mine)) << "success does not change the last error";
}

TEST_F(CApi, CommunicatorsKnowTheirPlace) {
  xylem_communicator* other = duplicate();
  ASSERT_NE(other, nullptr);
  EXPECT_EQ(xylem_communicator_rank(other), 0U);
  EXPECT_EQ(xylem_communicator_size(other), 1U);
  EXPECT_EQ(xylem_communicator_world_rank(other, 0), 0U);
  EXPECT_EQ(xylem_communicator_world_rank(other, 1), XYLEM_NO_RANK);
  EXPECT_NE(xylem_communicator_id(other), xylem_communicator_id(world));
  EXPECT_EQ(
      xylem_all_reduce(other, input.data(), output.data(), 3, XYLEM_FLOAT32, XYLEM_SUM, nullptr),
      XYLEM_OK);
  EXPECT_EQ(output, input);
  EXPECT_EQ(xylem_communicator_destroy(other), XYLEM_OK) << xylem_last_error();
}

TEST_F(CApi, WhoTakesNoPartInASplitGetsNothing) {
  auto* none = reinterpret_cast<xylem_communicator*>(1);
  EXPECT_EQ(xylem_communicator_split(world, -1, 0, &none), XYLEM_OK) << xylem_last_error();
  EXPECT_EQ(none, nullptr);
  EXPECT_EQ(xylem_communicator_destroy(none), XYLEM_OK);
}

TEST_F(CApi, TheWorldIsNotDestroyed) {
  EXPECT_EQ(xylem_communicator_destroy(world), XYLEM_INVALID_ARGUMENT);
  EXPECT_EQ(xylem_barrier(world, nullptr), XYLEM_OK) << xylem_last_error();
}

TEST_F(CApi, ACommunicatorWithPendingWorkIsBusy) {
  xylem_communicator* other = duplicate();
  ASSERT_NE(other, nullptr);
  const Work work = receive(other, 0, 0);
  EXPECT_EQ(xylem_communicator_destroy(other), XYLEM_BUSY);
  EXPECT_EQ(xylem_send(other, input.data(), 3, XYLEM_FLOAT32, 0, 0, nullptr), XYLEM_OK)
      << xylem_last_error();
  EXPECT_EQ(xylem_work_wait(work.get()), XYLEM_OK);
  EXPECT_EQ(xylem_communicator_destroy(other), XYLEM_OK) << xylem_last_error();
}

TEST_F(CApi, AbortEndsWhatIsPendingAndPoisons) {
  xylem_communicator* other = duplicate();
  ASSERT_NE(other, nullptr);
  const Work work = receive(other, 0, 0);
  EXPECT_EQ(xylem_communicator_abort(other, "the learning rate is wrong"), XYLEM_OK);
  EXPECT_EQ(xylem_work_wait(work.get()), XYLEM_CANCELLED);
  EXPECT_THAT(xylem_last_error(), HasSubstr("the learning rate is wrong"));
  EXPECT_EQ(xylem_last_error_peer(), 0U);
  EXPECT_EQ(xylem_barrier(other, nullptr), XYLEM_CANCELLED);
  EXPECT_EQ(xylem_communicator_destroy(other), XYLEM_OK) << xylem_last_error();
  EXPECT_EQ(xylem_barrier(world, nullptr), XYLEM_OK) << "other communicators go on";
}

TEST_F(CApi, APlanSaysWhatAndWhy) {
  xylem_plan plan{};
  plan.struct_size = sizeof plan;
  ASSERT_EQ(xylem_communicator_plan(world, "all_reduce", 1024, XYLEM_FLOAT32, 0, &plan), XYLEM_OK)
      << xylem_last_error();
  EXPECT_STRNE(plan.algorithm, "");
  EXPECT_STRNE(plan.reason, "");
  EXPECT_EQ(plan.struct_size, sizeof plan);
  EXPECT_EQ(xylem_communicator_plan(world, "all_reduse", 1024, XYLEM_FLOAT32, 0, &plan),
            XYLEM_INVALID_ARGUMENT);
  EXPECT_THAT(xylem_last_error(), HasSubstr("all_reduse"));
}

TEST_F(CApi, APlanFillsNoMoreThanTheCallersStruct) {
  xylem_plan plan;
  std::memset(&plan, 0x5a, sizeof plan);
  plan.struct_size = offsetof(xylem_plan, algorithm);
  ASSERT_EQ(xylem_communicator_plan(world, "broadcast", 1024, XYLEM_UINT8, 0, &plan), XYLEM_OK)
      << xylem_last_error();
  EXPECT_EQ(plan.algorithm[0], 0x5a);
  EXPECT_EQ(plan.struct_size, offsetof(xylem_plan, algorithm));
}

TEST(CEnd, ARuntimeWithPendingWorkIsBusyAndItsEndAborts) {
  Runtime runtime = start(one_rank());
  ASSERT_NE(runtime, nullptr);
  float value = 0;
  xylem_work* begun = nullptr;
  ASSERT_EQ(xylem_recv(xylem_runtime_world(runtime.get()), &value, 1, XYLEM_FLOAT32, 0, 0, &begun),
            XYLEM_OK);
  const Work receive(begun);
  EXPECT_EQ(xylem_runtime_shutdown(runtime.get()), XYLEM_BUSY);
  runtime.reset();
  EXPECT_EQ(xylem_work_wait(begun), XYLEM_CANCELLED);
  EXPECT_EQ(xylem_last_error_peer(), 0U) << "this rank ended it";
}

TEST(CEnd, CommunicatorsMayOutliveTheirRuntime) {
  Runtime runtime = start(one_rank());
  ASSERT_NE(runtime, nullptr);
  xylem_communicator* other = nullptr;
  ASSERT_EQ(xylem_communicator_duplicate(xylem_runtime_world(runtime.get()), &other), XYLEM_OK);
  EXPECT_EQ(xylem_runtime_shutdown(runtime.get()), XYLEM_OK) << xylem_last_error();
  EXPECT_EQ(xylem_barrier(xylem_runtime_world(runtime.get()), nullptr), XYLEM_INVALID_ARGUMENT);
  runtime.reset();
  EXPECT_EQ(xylem_barrier(other, nullptr), XYLEM_INVALID_ARGUMENT);
  EXPECT_EQ(xylem_communicator_destroy(other), XYLEM_OK) << xylem_last_error();
}

TEST(CEnd, NullHandlesAreHarmless) {
  xylem_runtime_destroy(nullptr);
  xylem_work_release(nullptr);
  EXPECT_EQ(xylem_runtime_world(nullptr), nullptr);
  EXPECT_EQ(xylem_runtime_size(nullptr), 0U);
  EXPECT_EQ(xylem_communicator_size(nullptr), 0U);
  EXPECT_EQ(xylem_communicator_rank(nullptr), XYLEM_NO_RANK);
  EXPECT_EQ(xylem_work_source(nullptr), XYLEM_NO_RANK);
  EXPECT_EQ(xylem_work_count(nullptr), 0U);
  EXPECT_EQ(xylem_runtime_shutdown(nullptr), XYLEM_INVALID_ARGUMENT);
}

}  // namespace
