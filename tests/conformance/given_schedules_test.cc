// SPDX-License-Identifier: Apache-2.0
//
// Schedules from a file (XYLEM_SCHEDULES): they are proved before they run, they take precedence
// over the schedules of Xylem's planners, and they must be the same on all ranks.
#include "runtime/src/calls/given_schedules.h"

#include "conformance/run_case.h"
#include "support/outcome.h"
#include "support/ranks.h"
#include "support/sanitizer.h"
#include "support/temporary_directory.h"
#include "xylem/base/unique_fd.h"
#include "xylem/collectives/planner.h"
#include "xylem/collectives/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/fanotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <string>

namespace xylem::test {
namespace {

using collectives::Collective;
using runtime::Config;
using runtime::GivenSchedules;

constexpr std::chrono::seconds kLimit{30};

class GivenSchedule : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) const {
    return directory_.write(name, text);
  }
  static Result<GivenSchedules> load(const std::string& path,
                                     Deadline deadline = Deadline::after(kLimit)) {
    Config config;
    config.schedules = path;
    return GivenSchedules::load(config, deadline);
  }

 private:
  const TemporaryDirectory directory_;
};

/// The text of a planner's schedules for all ranks, as an algorithm named "mine".
std::string mine(Collective collective, std::string_view algorithm, std::uint32_t ranks) {
  std::string text;
  const auto* planner = collectives::find_planner(collective, algorithm);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    auto schedule = planner->plan({collective, ranks}, rank);
    schedule.algorithm = "mine";
    text += print(schedule);
  }
  return text;
}

/// Replaces the first occurrence of `from` by `to`.
std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST_F(GivenSchedule, OfEveryPlannerIsProven) {
  for (const auto& planner : collectives::planners()) {
    for (const std::uint32_t ranks : {1U, 2U, 3U, 5U, 8U}) {
      const std::uint32_t root = has_root(planner.collective) ? ranks - 1 : 0;
      std::string text;
      bool maps_memory = false;
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        const auto schedule = planner.plan({planner.collective, ranks, root}, rank);
        for (const auto& operand : schedule.operands) maps_memory |= operand.rank != rank;
        text += print(schedule);
      }
      const auto given = load(write("plan", text));
      if (maps_memory) {
        EXPECT_EQ(given.code(), Code::unsupported) << given.status().to_string();
        continue;
      }
      ASSERT_TRUE(given) << given.status().to_string();
      EXPECT_NE(given->find({planner.collective, ranks, root}), nullptr);
      EXPECT_EQ(given->find({planner.collective, ranks + 1, root}), nullptr);
    }
  }
}

TEST_F(GivenSchedule, RunsInPlaceOfXylemsOwn) {
  for (const char* const transport : {"loopback", "shm"}) {
    for (const std::uint32_t ranks : {1U, 2U, 3U, 5U, 8U}) {
      RankOptions options{.size = ranks, .transport = transport};
      const std::string path =
          write("plans", mine(Collective::all_reduce, "recursive_doubling", ranks) + "\n" +
                             mine(Collective::all_gather, "bruck", ranks));
      options.environment["XYLEM_SCHEDULES"] = path;
      // The file has precedence over XYLEM_ALGORITHM.
      options.environment["XYLEM_ALGORITHM"] = "ring";
      options.environment["XYLEM_SLICE"] = "1K";
      run_ranks(options, [&](const Communicator& world) {
        const auto info = world.plan_info("all_reduce", 1000, DataType::float32);
        ASSERT_TRUE(info);
        EXPECT_EQ(info->algorithm, "mine");
        EXPECT_EQ(info->runner_up, "ring");
        EXPECT_EQ(info->reason, "given in " + path);
        if (ranks > 1) {
          EXPECT_GT(info->predicted_us, 0);
        }
        for (const auto collective : {Collective::all_reduce, Collective::all_gather}) {
          for (const auto& one : sample(collective, ranks, kHasSanitizer ? 30 : 150))
            ASSERT_EQ(run_case(world, one), "") << transport;
        }
      });
    }
  }
}

TEST_F(GivenSchedule, OfAnotherShapeIsNotUsed) {
  RankOptions options{.size = 3};
  options.environment["XYLEM_SCHEDULES"] = write("plans", mine(Collective::all_reduce, "ring", 3));
  run_ranks(options, [&](const Communicator& world) {
    EXPECT_NE(world.plan_info("all_gather", 8, DataType::int8)->algorithm, "mine");
    const auto pair = world.split(world.rank() == 2 ? 1 : 0, 0);
    ASSERT_TRUE(pair);
    EXPECT_NE(pair->plan_info("all_reduce", 8, DataType::int8)->algorithm, "mine");
    EXPECT_EQ(world.plan_info("all_reduce", 8, DataType::int8)->algorithm, "mine");
  });
}

TEST_F(GivenSchedule, ThatIsWrongEndsTheStart) {
  const std::string right = mine(Collective::all_reduce, "ring", 3);
  const auto expect_refused = [&](const std::string& path, Code code, const std::string& why) {
    RankOptions options{.size = 3, .environment = {{"XYLEM_SCHEDULES", path}}};
    run_ranks(
        options, [](Runtime&, MemoryHub&) { FAIL() << "a rank started"; },
        [&](std::uint32_t, const Status& status) {
          EXPECT_THAT(status, fails_as(code, "XYLEM_SCHEDULES=" + path, why));
        });
  };
  expect_refused(write("wrong", replaced(right, "input[1]", "input[0]")), Code::bad_schedule,
                 "all_reduce mine of 3 ranks with root 0: ");
  expect_refused(write("half", right.substr(0, right.find("\nschedule"))), Code::bad_schedule,
                 "rank 1 has no schedule in the text");
  expect_refused(write("text", "all_reduce=ring\n"), Code::bad_schedule, "line 1: ");
  expect_refused(write("empty", ""), Code::invalid_argument, "holds no schedule");
  expect_refused("/", Code::invalid_argument, "must be a regular file");
  expect_refused("/dev/zero", Code::invalid_argument, "must be a regular file");
  const std::string fifo = write("fifo", "");
  ASSERT_EQ(::unlink(fifo.c_str()), 0);
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  expect_refused(fifo, Code::invalid_argument, "must be a regular file");
  const std::string large = write("large", "");
  std::filesystem::resize_file(large, (std::uintmax_t{256} << 20) + 1);
  expect_refused(large, Code::invalid_argument, "at most 256 MiB");
  expect_refused("/nowhere/plans", Code::invalid_argument, "No such file or directory");
}

/// While an object of this class exists, opening the file blocks, as on a file system whose server
/// does not answer.
class UnansweredFile {
 public:
  explicit UnansweredFile(const std::string& path)
      : watch_(::fanotify_init(FAN_CLASS_CONTENT | FAN_CLOEXEC, O_RDONLY)) {
    if (!watch_ ||
        ::fanotify_mark(watch_.get(), FAN_MARK_ADD, FAN_OPEN_PERM, AT_FDCWD, path.c_str()) != 0) {
      watch_.reset();
    }
  }
  explicit operator bool() const { return static_cast<bool>(watch_); }

 private:
  UniqueFd watch_;
};

TEST_F(GivenSchedule, ThatIsNotReadInTimeEndsTheStart) {
  const std::string path = write("slow", mine(Collective::all_reduce, "ring", 2));
  const UnansweredFile file(path);
  if (!file) GTEST_SKIP() << "holding up those who open a file needs root (fanotify)";
  const auto given = load(path, Deadline::after(std::chrono::milliseconds(100)));
  EXPECT_THAT(given, fails_as(Code::timed_out, "XYLEM_SCHEDULES=" + path, "does not answer"));
}

TEST_F(GivenSchedule, MustBeTheSameOnAllRanks) {
  const std::string ring = mine(Collective::all_reduce, "ring", 2);
  RankOptions options;
  options.environment["XYLEM_SCHEDULES"] = write("ring", ring);
  const std::string other = write("other", mine(Collective::all_reduce, "two_shot", 2));
  const std::string same = write("same", ring);
  for (const std::string& path : {other, std::string(), same}) {
    options.adjust = [&](std::uint32_t rank, runtime::Environment& environment) {
      if (rank == 1) environment["XYLEM_SCHEDULES"] = path;
    };
    std::atomic<int> refused = 0;
    run_ranks(
        options,
        [&](Runtime& runtime, MemoryHub&) {
          EXPECT_EQ(path, same);
          EXPECT_TRUE(runtime.world().barrier().wait());
        },
        [&](std::uint32_t, const Status& status) {
          ++refused;
          EXPECT_THAT(status, fails_as(Code::mismatch, "XYLEM_SCHEDULES"));
        });
    EXPECT_EQ(refused, path == same ? 0 : 2);
  }
}

}  // namespace
}  // namespace xylem::test
