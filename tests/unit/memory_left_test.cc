// SPDX-License-Identifier: Apache-2.0
//
// The memory that is available to a process, as limited by the machine and by control groups.
#include "shm/memory_left.h"

#include "support/temporary_directory.h"

#include <gtest/gtest.h>

#include <string>

namespace xylem::transport::shm {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

/// A made-up file system.
class MemoryLeftOf : public ::testing::Test {
 protected:
  void SetUp() override {
    files = {folder + "/meminfo", folder + "/cgroup", folder + "/root"};
    write("meminfo", "MemTotal:       9999999 kB\nMemAvailable:   1048576 kB\n");
  }
  void write(const std::string& name, const std::string& text) const {
    directory.write(name, text);
  }

  test::TemporaryDirectory directory;
  const std::string folder = directory.path();
  MemoryFiles files;
};

TEST_F(MemoryLeftOf, AMachineIsWhatItHasAvailable) {
  const MemoryLeft left = memory_left(files);
  EXPECT_EQ(left.bytes, 1024 * kMiB);
  EXPECT_EQ(left.limit, "this machine");
}

TEST_F(MemoryLeftOf, AGroupIsItsLimitLessWhatCannotBeTakenBack) {
  write("cgroup", "0::/job/step\n");
  write("root/job/step/memory.max", "104857600\n");
  write("root/job/step/memory.current", "62914560\n");
  write("root/job/step/memory.stat", "anon 1\nactive_file 10485760\ninactive_file 10485760\n");
  const MemoryLeft left = memory_left(files);
  EXPECT_EQ(left.bytes, 60 * kMiB);
  EXPECT_EQ(left.limit, files.root + "/job/step/memory.max");
}

TEST_F(MemoryLeftOf, GroupsAboveBoundItToo) {
  write("cgroup", "0::/job/step\n");
  write("root/job/step/memory.max", "max\n");
  write("root/job/step/memory.current", "1\n");
  write("root/job/memory.max", "52428800\n");
  write("root/job/memory.current", "53000000\n");
  const MemoryLeft left = memory_left(files);
  EXPECT_EQ(left.bytes, 0U);
  EXPECT_EQ(left.limit, files.root + "/job/memory.max");
}

// In a container, the path of the host does not exist, and the limit is in the root directory.
TEST_F(MemoryLeftOf, GroupsOfTheFirstVersionAreRead) {
  write("cgroup", "5:cpu:/docker/1\n4:memory:/docker/1\n");
  write("root/memory/memory.limit_in_bytes", "73400320\n");
  write("root/memory/memory.usage_in_bytes", "20971520\n");
  write("root/memory/memory.stat", "total_active_file 0\ntotal_inactive_file 10485760\n");
  EXPECT_EQ(memory_left(files).bytes, 60 * kMiB);
}

TEST_F(MemoryLeftOf, ASystemThatTellsNothingIsUnbounded) {
  const MemoryFiles none{folder + "/no", folder + "/no", folder + "/no"};
  EXPECT_EQ(memory_left(none).bytes, ~std::uint64_t{0});
}

}  // namespace
}  // namespace xylem::transport::shm
