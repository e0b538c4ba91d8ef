// SPDX-License-Identifier: Apache-2.0
//
// `xylem topo` end to end: what it prints about a file and about this machine, how it compares two
// topologies, and its errors.
#include "process/command.h"
#include "support/temporary_directory.h"
#include "xylem/base/unique_fd.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace xylem {
namespace {

using test::Finished;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const std::string kGolden = XYLEM_TEST_DATA "/golden/topology/";
constexpr std::chrono::seconds kLimit{30};

Finished topo(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {XYLEM_TEST_BIN "/xylem", "topo"});
  return test::run_command(arguments, {}, kLimit);
}

TEST(Topo, ShowsThisMachineWithoutComplaint) {
  for (const char* format : {"tree", "matrix", "json", "svg", "html"}) {
    const Finished done = topo({"--format", format});
    EXPECT_EQ(done.exit_status, 0) << done.err;
    EXPECT_FALSE(done.out.empty()) << format;
    EXPECT_EQ(done.err, "");
  }
}

TEST(Topo, ShowsTheMachineOfAFileInEachForm) {
  EXPECT_THAT(topo({kGolden + "ladder.v2.xml"}).out, HasSubstr("GPU3"));
  EXPECT_THAT(topo({kGolden + "nccl_dump.xml"}).out, HasSubstr("nearest mlx5_2 (PIX)"));
  EXPECT_THAT(topo({kGolden + "rccl_mesh.json", "--format", "matrix"}).out, HasSubstr("XGMI"));
}

TEST(Topo, ShowsAMachineThatIsOnlyDescribed) {
  const Finished done = topo({"2 packages, 8 gpus, 1 nic/gpu, nvswitch"});
  EXPECT_THAT(done.out, HasSubstr("1 GPU ring over NVSwitches, 450 GB/s; no schedule over"));
  const Finished wrong = topo({"8 tpus"});
  EXPECT_EQ(wrong.exit_status, 2);
  EXPECT_THAT(wrong.err, StartsWith("xylem topo: description: \"8 tpus\": "));
  EXPECT_THAT(topo({"8gpus.xml"}).err, HasSubstr("8gpus.xml: cannot read it"));
}

TEST(Topo, ComparesWithWhatNvidiaSmiPrinted) {
  const std::string matrix = kGolden + "nccl_dump.matrix";
  const Finished same = topo({kGolden + "nccl_dump.xml", "--compare", matrix});
  EXPECT_EQ(same.exit_status, 0) << same.out << same.err;
  EXPECT_THAT(same.out, EndsWith("agree\n"));
  const Finished other = topo({kGolden + "nccl_template.xml", "--compare", matrix});
  EXPECT_EQ(other.exit_status, 1);
  EXPECT_THAT(other.out, HasSubstr("mlx5_0: only in " + matrix + "\n"));
}

TEST(Topo, TellsTwoMachinesApart) {
  const std::string dump = kGolden + "nccl_dump.xml";
  const Finished same = topo({dump, "--diff", kGolden + "nccl_dump.json"});
  EXPECT_EQ(same.exit_status, 0) << same.out;
  EXPECT_EQ(same.out, "no difference\n");
  const Finished other = topo({dump, "--diff", kGolden + "rccl_mesh.xml"});
  EXPECT_EQ(other.exit_status, 1);
  EXPECT_THAT(other.out, HasSubstr("NUMA node 0: CPUs 0-3,8-11 here, 0-7 in "));
}

TEST(Topo, SaysWhichDevicesAreNearOtherCpus) {
  const std::string dump = kGolden + "nccl_dump.xml";
  std::ifstream file(dump);
  std::string text(std::istreambuf_iterator<char>(file), {});
  const auto affinity = text.find("f0f0");
  ASSERT_NE(affinity, std::string::npos);
  text.replace(affinity, 4, "f070");
  const test::TemporaryDirectory directory;
  const std::string other = directory.write("other.xml", text);
  const Finished done = topo({dump, "--diff", other});
  EXPECT_EQ(done.exit_status, 1) << done.err;
  for (const std::string thing :
       {"NUMA node 1: ", "GPU at 0000:82:00.0: near ", "NIC at 0000:83:00.0: near "}) {
    EXPECT_THAT(done.out, HasSubstr(thing + "CPUs 4-7,12-15 here, 4-6,12-15 in " + other + "\n"));
  }
  EXPECT_THAT(done.out, Not(HasSubstr("0000:04:00.0"))) << "a GPU near the other NUMA node";
}

TEST(Topo, ExplainsADeviceOrTheWayBetweenTwo) {
  const std::string dump = kGolden + "nccl_dump.xml";
  EXPECT_EQ(topo({dump, "--explain", "gpu0"}).out,
            "GPU0, 0000:04:00.0, PCIe gen 5 x16, 63.02 GB/s, near NUMA node 0 (CPUs 0-3,8-11)\n"
            "  uses PXB to mlx5_0\n"
            "  nearest by place: mlx5_0, mlx5_1\n");
  EXPECT_EQ(topo({dump, "--explain", "GPU2", "mlx5_2"}).out,
            "GPU2, 0000:82:00.0, PCIe gen 5 x16, 63.02 GB/s, near NUMA node 1 (CPUs 4-7,12-15)\n"
            "mlx5_2, 0000:83:00.0, PCIe gen 5 x16, 63.02 GB/s, near NUMA node 1 (CPUs 4-7,12-15)\n"
            "  path: PIX, 2 bridges below the nearest common one\n"
            "  bandwidth: 63.02 GB/s (derived)\n");
  EXPECT_EQ(topo({"--explain", "gpu0", dump}).out, topo({dump, "--explain", "gpu0"}).out);
  const Finished none = topo({dump, "--explain", "gpu9"});
  EXPECT_EQ(none.exit_status, 2);
  EXPECT_THAT(none.err, HasSubstr("no device \"gpu9\"; there are gpu0, gpu1, gpu2, gpu3, mlx5_0"));
}

TEST(Topo, RefusesWithOneLineThatNamesFileAndRemedy) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"/nonexistent.xml"},
        {kGolden + "ladder.tree"},
        {kGolden + "ladder.v2.xml", "--compare", kGolden + "ladder.json"},
        {kGolden + "ladder.v2.xml", "--compare", "/nonexistent"}}) {
    const Finished done = topo(arguments);
    EXPECT_EQ(done.exit_status, 2);
    EXPECT_EQ(done.out, "");
    EXPECT_THAT(done.err, StartsWith("xylem topo: " + arguments.back()));
    EXPECT_EQ(std::ranges::count(done.err, '\n'), 1) << done.err;
  }
}

TEST(Topo, ReadsAPipeOfABoundedSize) {
  const Finished done = test::run_command(
      {"/bin/sh", "-c",
       "cat " + kGolden + "ladder.v2.xml | exec " XYLEM_TEST_BIN "/xylem topo /dev/stdin"},
      {}, kLimit);
  EXPECT_THAT(done.out, HasSubstr("GPU3")) << done.err;
  const Finished endless = topo({"/dev/zero"});
  EXPECT_EQ(endless.exit_status, 2);
  EXPECT_EQ(endless.err, "xylem topo: /dev/zero: it must be a file of at most 16 MiB\n");
}

TEST(Topo, ThatWaitsForAPipeEndsAtCtrlC) {
  const test::TemporaryDirectory directory;
  const std::string fifo = directory.path() + "/fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  test::Command command({XYLEM_TEST_BIN "/xylem", "topo", fifo});
  const Deadline limit = Deadline::after(kLimit);
  UniqueFd writer;  // The open succeeds only after the command has opened the FIFO for reading.
  while (!writer && !limit.passed()) writer.reset(::open(fifo.c_str(), O_WRONLY | O_NONBLOCK));
  command.signal(SIGINT);
  const Finished done = command.wait(limit);
  EXPECT_TRUE(done.in_time);
  EXPECT_EQ(done.signal, SIGINT);
}

}  // namespace
}  // namespace xylem
