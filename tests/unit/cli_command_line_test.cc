// SPDX-License-Identifier: Apache-2.0
//
// Parsing of command lines, and the messages about invalid ones.
#include "tools/src/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace xylem::tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

template <typename Options>
Options parsed(const std::vector<std::string>& arguments) {
  const Command command = parse_command_line(arguments);
  if (const auto* answer = std::get_if<Answer>(&command)) ADD_FAILURE() << answer->text;
  const auto* options = std::get_if<Options>(&command);
  EXPECT_NE(options, nullptr);
  return options != nullptr ? *options : Options{};
}

std::string refused(const std::vector<std::string>& arguments) {
  const Command command = parse_command_line(arguments);
  const auto* answer = std::get_if<Answer>(&command);
  if (answer == nullptr) return "accepted";
  EXPECT_EQ(answer->exit_status, 2);
  return answer->text;
}

TEST(RunCommandLine, TakesTheProgramsFlagsForItself) {
  EXPECT_THAT(parsed<RunOptions>({"run", "-n", "2", "ls", "-n", "--help"}).command,
              ElementsAre("ls", "-n", "--help"));
  EXPECT_THAT(parsed<RunOptions>({"run", "-n", "2", "--", "ls", "--", "-l"}).command,
              ElementsAre("ls", "--", "-l"));
  EXPECT_THAT(parsed<RunOptions>({"run", "-n", "2", "echo", "--", "x"}).command,
              ElementsAre("echo", "--", "x"));
}

TEST(RunCommandLine, ReadsItsFlags) {
  const auto run = parsed<RunOptions>(
      {"run", "--no-prefix", "--timeout", "90s", "--require", "shm", "-n", "3", "ls"});
  EXPECT_EQ(run.ranks, 3U);
  EXPECT_FALSE(run.prefix);
  EXPECT_EQ(run.timeout, std::chrono::seconds(90));
  EXPECT_EQ(run.require, "shm");
  EXPECT_EQ(parsed<RunOptions>({"run", "-n", "3", "ls"}).require, "");
}

TEST(RunCommandLine, NamesWhatIsMissing) {
  EXPECT_THAT(refused({"run", "-n", "2"}), HasSubstr("which program"));
  EXPECT_THAT(refused({"run", "-n", "2", "--"}), HasSubstr("which program"));
  EXPECT_THAT(refused({"run", "ls"}), HasSubstr("--ranks is required"));
  EXPECT_THAT(refused({"run", "-n", "0", "ls"}), HasSubstr("\"0\" is no whole number from 1"));
  EXPECT_THAT(refused({"run", "-n", "2", "-x", "ls"}), HasSubstr("-x: no such flag"));
  EXPECT_THAT(refused({"run", "-n", "2", "--require", "ucx", "ls"}),
              HasSubstr("--require: \"ucx\" is none of shm, tcp, rdma"));
}

TEST(RunCommandLine, KnowsTheFlagsOfOtherLaunchers) {
  EXPECT_THAT(refused({"run", "--hosts", "a,b", "-n", "2", "true"}),
              HasSubstr("--hosts: no such flag (mpirun has one): xylem run starts ranks on this"));
  EXPECT_THAT(refused({"run", "-n", "2", "--hostfile=nodes", "true"}), HasSubstr("--hostfile: no"));
  EXPECT_THAT(refused({"run", "-np", "2", "true"}), HasSubstr("use -n RANKS"));
  EXPECT_THAT(refused({"run", "--rank", "2", "true"}), HasSubstr("did you mean --ranks?"));
  EXPECT_THAT(parsed<RunOptions>({"run", "-n", "2", "job", "--hosts", "a"}).command,
              ElementsAre("job", "--hosts", "a"));
}

TEST(BenchCommandLine, KnowsTheFlagsOfNcclTests) {
  for (const auto& [flag, remedy] :
       std::vector<std::pair<std::string, std::string>>{{"-g", "-n RANKS --device cuda"},
                                                        {"-t", "-n RANKS"},
                                                        {"-w", "--warmup CALLS"},
                                                        {"-c", "--check on|off"},
                                                        {"-m", "--back-to-back"},
                                                        {"-d", "--type TYPE"},
                                                        {"-o", "--redop REDOP"},
                                                        {"--warmup_iters", "--warmup CALLS"}}) {
    const auto hint = testing::AllOf(HasSubstr(flag + ": no such flag"), HasSubstr("nccl-tests"),
                                     HasSubstr("use " + remedy));
    EXPECT_THAT(refused({"bench", "all_reduce", flag, "1"}), hint);
    EXPECT_THAT(refused({"bench", flag, "1", "all_reduce"}), hint) << "1 is no operation";
    EXPECT_THAT(refused({"bench", "all_reduce", "-b1K", flag + "=1"}), hint);
  }
  EXPECT_THAT(refused({"bench", "all_reduce", "-b1K", "-g1"}), HasSubstr("-g: no such flag"));
  EXPECT_THAT(refused({"bench", "all_reduce", "--root", "-1"}), HasSubstr("no whole number"));
}

TEST(BenchCommandLine, HasTheDefaultsOfItsHelp) {
  const auto bench = parsed<BenchOptions>({"bench", "all_reduce"});
  EXPECT_THAT(bench.operations, ElementsAre(Operation::all_reduce));
  EXPECT_EQ(bench.begin, Bytes{8});
  EXPECT_EQ(bench.end, Bytes{64 << 20});
  EXPECT_EQ(bench.factor, 2U);
  EXPECT_EQ(bench.type, DataType::float32);
  EXPECT_EQ(bench.redop, RedOp::sum);
  EXPECT_TRUE(bench.check);
  EXPECT_FALSE(bench.ranks);
  EXPECT_FALSE(bench.device.is_cuda);
  EXPECT_FALSE(bench.stream);
}

TEST(BenchCommandLine, ReadsEveryFlag) {
  const auto bench =
      parsed<BenchOptions>({"bench",      "reduce",      "-n",         "4",
                            "-b",         "1K",          "-e",         "1MiB",
                            "-f",         "4",           "--type",     "bf16",
                            "--redop",    "max",         "--root",     "3",
                            "--in-place", "--algorithm", "ring",       "--transport",
                            "ucx-tcp",    "--warmup",    "0",          "--iters",
                            "7",          "--check",     "off",        "--back-to-back",
                            "--json",     "-",           "--baseline", "before.json",
                            "--csv",      "rows.csv",    "--require",  "rdma"});
  EXPECT_EQ(bench.ranks, 4U);
  EXPECT_EQ(bench.begin, Bytes{1024});
  EXPECT_EQ(bench.end, Bytes{1 << 20});
  EXPECT_EQ(bench.factor, 4U);
  EXPECT_EQ(bench.type, DataType::bfloat16);
  EXPECT_EQ(bench.redop, RedOp::max);
  EXPECT_EQ(bench.root, 3U);
  EXPECT_TRUE(bench.in_place);
  EXPECT_EQ(bench.algorithm, "ring");
  EXPECT_EQ(bench.transport, "ucx-tcp");
  EXPECT_EQ(bench.require, "rdma");
  EXPECT_EQ(bench.warmup, 0U);
  EXPECT_EQ(bench.iterations, 7U);
  EXPECT_FALSE(bench.check);
  EXPECT_TRUE(bench.back_to_back);
  EXPECT_EQ(bench.json, "-");
  EXPECT_EQ(bench.csv, "rows.csv");
  EXPECT_EQ(bench.baseline, "before.json");
}

TEST(BenchFlags, NameTheDevicesOfBuffers) {
  const auto each = parsed<BenchOptions>({"bench", "all_reduce", "--device", "cuda", "--stream"});
  EXPECT_TRUE(each.device.is_cuda);
  EXPECT_FALSE(each.device.number);
  EXPECT_TRUE(each.stream);
  EXPECT_EQ(parsed<BenchOptions>({"bench", "all_reduce", "--device", "cuda:3"}).device.number, 3U);
  EXPECT_FALSE(parsed<BenchOptions>({"bench", "all_reduce", "--device", "host"}).device.is_cuda);
}

TEST(BenchCommandLine, MeansEveryOperationByAll) {
  const auto bench = parsed<BenchOptions>({"bench", "all"});
  EXPECT_TRUE(bench.all);
  EXPECT_EQ(bench.operations.size(), operations().size());
}

TEST(BenchCommandLine, NamesTheFlagTheValueAndTheRemedy) {
  const auto type = refused({"bench", "all_reduce", "--type", "float33"});
  EXPECT_THAT(type, StartsWith("xylem bench: --type"));
  EXPECT_THAT(type, HasSubstr("float33"));
  EXPECT_THAT(type, HasSubstr("did you mean \"float32\"?"));
  EXPECT_THAT(refused({"bench", "all_reduce", "-b", "1X"}), HasSubstr("1X"));
  EXPECT_THAT(refused({"bench", "all_reduce", "-b", "0"}), HasSubstr("1 byte"));
  EXPECT_THAT(refused({"bench", "all_reduce", "-b", "1M", "-e", "1K"}), HasSubstr("1 MiB"));
  EXPECT_THAT(refused({"bench", "all_reduce", "-f", "1"}), HasSubstr("-f"));
  EXPECT_THAT(refused({"bench", "all_reduce", "--check", "of"}), HasSubstr("did you mean off?"));
  EXPECT_THAT(refused({"bench", "all_reduce", "--transport", "sm"}),
              HasSubstr("did you mean shm?"));
  for (const char* device : {"gpu", "cuda:", "cuda:-1", "cuda:1x", "cuda1", "cuda:1024", ""}) {
    EXPECT_THAT(refused({"bench", "all_reduce", "--device", device}), HasSubstr("--device"));
  }
  EXPECT_THAT(refused({"bench", "all_reduce", "--algoritm=ring"}),
              HasSubstr("did you mean --algorithm?"));
  EXPECT_THAT(refused({"bench"}), HasSubstr("what to measure"));
  EXPECT_THAT(refused({"bench", "reduce", "--json", "-", "--csv", "-"}), HasSubstr("two files"));
  EXPECT_THAT(refused({"bench", "all_reduce", "reduce"}), HasSubstr("more than it takes: reduce"));
}

TEST(PlanCommandLine, ReadsWhatToPlanFor) {
  const auto plan = parsed<PlanOptions>({"plan", "broadcast", "8 gpus", "-n", "16", "--hosts", "2",
                                         "--bytes", "64M", "--root", "3", "--algorithm", "ring"});
  EXPECT_EQ(plan.collective, collectives::Collective::broadcast);
  EXPECT_THAT(plan.sources, testing::ElementsAre("8 gpus"));
  EXPECT_EQ(plan.ranks, 16U);
  EXPECT_EQ(plan.hosts, 2U);
  EXPECT_EQ(plan.bytes, Bytes{std::uint64_t{64} << 20});
  EXPECT_EQ(plan.root, 3U);
  EXPECT_EQ(plan.algorithm, "ring");
  EXPECT_TRUE(plan.format == PlanOptions::Format::text && !plan.no_steps);
  const auto drawn = parsed<PlanOptions>({"plan", "reduce", "a.xml", "b.xml", "--network",
                                          "latency 3 us", "--format", "svg", "--no-steps"});
  EXPECT_THAT(drawn.sources, ElementsAre("a.xml", "b.xml"));
  EXPECT_EQ(drawn.network, "latency 3 us");
  EXPECT_TRUE(drawn.format == PlanOptions::Format::svg && drawn.no_steps);
  EXPECT_THAT(refused({"plan", "reduce", "--format", "png"}), HasSubstr("svg"));
  EXPECT_THAT(refused({"plan"}), HasSubstr("operation is required"));
  EXPECT_THAT(refused({"plan", "al_reduce"}), HasSubstr("unknown collective 'al_reduce'"));
  for (const char* name : {"allreduce", "AllReduce", "allgather", "reducescatter", "alltoall"}) {
    EXPECT_THAT(refused({"plan", name}), HasSubstr("(did you mean ")) << name;
  }
  EXPECT_THAT(refused({"plan", "allreduce"}), HasSubstr("(did you mean all_reduce?)"));
  EXPECT_THAT(refused({"plan", "reduce", "--hosts", "0"}), HasSubstr("--hosts"));
}

TEST(TopoCommandLine, ReadsFormatAndFile) {
  EXPECT_EQ(parsed<TopoOptions>({"topo"}).format, TopoOptions::Format::tree);
  const auto topo = parsed<TopoOptions>({"topo", "--format", "json", "machine.xml"});
  EXPECT_EQ(topo.format, TopoOptions::Format::json);
  EXPECT_EQ(topo.source, "machine.xml");
  EXPECT_EQ(parsed<TopoOptions>({"topo", "m.xml", "--compare", "smi.txt"}).compare, "smi.txt");
  EXPECT_THAT(refused({"topo", "--compare", "a", "--diff", "b"}), HasSubstr("--diff"));
  EXPECT_THAT(refused({"topo", "--diff", "b", "--explain", "gpu0"}), HasSubstr("--explain"));
  EXPECT_THAT(refused({"topo", "--format", "matrx"}), HasSubstr("did you mean matrix?"));
}

TEST(CommandLine, SuggestsTheVerbThatWasMeant) {
  EXPECT_THAT(refused({"benh"}), HasSubstr("did you mean bench?"));
  EXPECT_THAT(refused({}), HasSubstr("run, bench, topo, plan, sim or info"));
}

TEST(CommandLine, AnswersHelpAndVersionOnStandardOutput) {
  for (const auto& arguments : std::vector<std::vector<std::string>>{
           {"--help"}, {"bench", "--help"}, {"run", "-h"}, {"--version"}}) {
    const Command command = parse_command_line(arguments);
    const auto* answer = std::get_if<Answer>(&command);
    ASSERT_NE(answer, nullptr);
    EXPECT_EQ(answer->exit_status, 0);
    EXPECT_THAT(answer->text, HasSubstr("xylem"));
  }
}

}  // namespace
}  // namespace xylem::tools
