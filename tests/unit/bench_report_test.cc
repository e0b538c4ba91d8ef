// SPDX-License-Identifier: Apache-2.0
//
// Reports: their JSON conforms to its schema, their table has the columns of nccl-tests, and an
// earlier report can serve as the baseline.
#include "support/outcome.h"
#include "support/temporary_directory.h"
#include "tools/src/bench/report.h"
#include "tools/src/bench/report_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace xylem::tools {
namespace {

using testing::ElementsAre;

BenchRow row(Operation operation, std::uint64_t bytes, double microseconds) {
  BenchRow made;
  made.operation = operation;
  made.algorithm = "ring";
  made.transport = "shm";
  made.ranks = 4;
  made.size = {bytes};
  made.count = bytes / 4;
  if (traits(operation).reduces) made.redop = RedOp::sum;
  if (traits(operation).rooted) made.root = 2;
  made.measured.microseconds = {microseconds / 2, microseconds, microseconds * 2};
  made.measured.iterations = 100;
  return made;
}

std::vector<std::string> words(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> found;
  for (std::string word; in >> word;) found.push_back(word);
  return found;
}

TEST(ReportJson, HasTheFieldsOfTheSchema) {
  BenchEnvironment environment;
  environment.transports["shm"] = {"shm/memory"};
  auto wrong = row(Operation::all_reduce, 1000, 1.0);
  wrong.measured.wrong = 3;
  const auto report = nlohmann::json::parse(to_json(environment, {wrong}));
  EXPECT_EQ(report["schema"], 1);
  EXPECT_EQ(report["environment"]["transports"]["shm"][0], "shm/memory");
  const auto& result = report["results"].at(0);
  EXPECT_EQ(result["op"], "all_reduce");
  EXPECT_EQ(result["algorithm"], "ring");
  EXPECT_EQ(result["transport"], "shm");
  EXPECT_EQ(result["ranks"], 4);
  EXPECT_EQ(result["bytes"], 1000);
  EXPECT_EQ(result["type"], "float32");
  EXPECT_EQ(result["in_place"], false);
  EXPECT_EQ(result["time_us"], (nlohmann::json{{"min", 0.5}, {"p50", 1.0}, {"p99", 2.0}}));
  EXPECT_DOUBLE_EQ(result["algbw_GBps"].get<double>(), 1.0);
  EXPECT_DOUBLE_EQ(result["busbw_GBps"].get<double>(), 1.5);
  EXPECT_EQ(result["wrong"], 3);
}

TEST(ReportJson, SaysNullForAResultThatWasNotChecked) {
  auto unchecked = row(Operation::all_gather, 64, 1);
  unchecked.checked = false;
  const auto report = nlohmann::json::parse(to_json({}, {unchecked}));
  EXPECT_TRUE(report["results"].at(0)["wrong"].is_null());
  EXPECT_TRUE(report["results"].at(0)["redop"].is_null());
}

TEST(ReportJson, SaysWhetherItIsComplete) {
  EXPECT_EQ(nlohmann::json::parse(to_json({}, {}))["complete"], true);
  EXPECT_EQ(nlohmann::json::parse(to_json({}, {}, false))["complete"], false);
}

TEST(ReportCsv, HasTheFieldsOfJsonInOneLineForEachRow) {
  auto odd = row(Operation::all_gather, 64, 1);
  odd.algorithm = "a, \"b\"";
  odd.checked = false;
  std::istringstream lines(to_csv({row(Operation::all_reduce, 1000, 1), odd}));
  std::string names, first, second, rest;
  std::getline(lines, names);
  std::getline(lines, first);
  std::getline(lines, second);
  EXPECT_EQ(
      names,
      "op,algorithm,transport,ranks,bytes,count,type,redop,root,in_place,allocated,device,"
      "stream,offset,parts,iterations,time_us_min,time_us_p50,time_us_p99,predicted_us,algbw_GBps,"
      "busbw_GBps,limit_us,used_messages,used_announced,used_turns,used_idle_turns,"
      "used_pieces,used_staged_bytes,used_driver_calls,used_driver_ns,wrong");
  EXPECT_EQ(
      first,
      "all_reduce,ring,shm,4,1000,250,float32,sum,,false,false,host,false,0,,100,0.5,1.0,2.0,,"
      "1.0,1.5,,,,,,,,,,0");
  EXPECT_THAT(second, testing::StartsWith(R"(all_gather,"a, ""b""",shm,4,64,16,float32,,,)"));
  EXPECT_THAT(second, testing::EndsWith(",,")) << "neither a limit nor a check";
  EXPECT_FALSE(std::getline(lines, rest));
}

class ReportFileTest : public testing::Test {
 protected:
  std::string path(const char* name) const { return directory.path() + '/' + name; }
  std::string text(const char* name) const {
    std::ifstream file(path(name));
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void hold(const char* name, const char* text) const { std::ofstream(path(name)) << text; }
  std::ptrdiff_t entries() const {
    return std::distance(std::filesystem::directory_iterator(directory.path()), {});
  }

  test::TemporaryDirectory directory;
};

TEST_F(ReportFileTest, KeepsWhatItHoldsUntilItIsWritten) {
  hold("kept", "before");
  std::filesystem::permissions(path("kept"), std::filesystem::perms(0640));
  {
    auto kept = ReportFile::open(path("kept"));
    auto fresh = ReportFile::open(path("fresh"));
    ASSERT_TRUE(kept && fresh);
    EXPECT_EQ(entries(), 1) << "a new file appears only when it is written";
    EXPECT_EQ(text("kept"), "before");
    EXPECT_TRUE(kept->write("after"));
    EXPECT_TRUE(fresh->write("new"));
  }
  EXPECT_EQ(text("kept"), "after");
  EXPECT_EQ(text("fresh"), "new");
  EXPECT_EQ(std::filesystem::status(path("kept")).permissions(), std::filesystem::perms(0640));
  EXPECT_EQ(entries(), 2);
}

TEST_F(ReportFileTest, WritesLinksInPlace) {
  hold("target", "a longer text than the next");
  std::filesystem::create_symlink(path("target"), path("symbolic"));
  auto symbolic = ReportFile::open(path("symbolic"));
  ASSERT_TRUE(symbolic);
  EXPECT_TRUE(symbolic->write("one"));
  EXPECT_TRUE(std::filesystem::is_symlink(path("symbolic")));
  EXPECT_EQ(text("target"), "one");
  std::filesystem::create_hard_link(path("target"), path("hard"));
  auto hard = value_of(ReportFile::open(path("hard")));
  EXPECT_TRUE(hard.write("two"));
  EXPECT_EQ(text("target"), "two") << "both names are still those of one file";
}

TEST_F(ReportFileTest, SaysWhyItCannotBeWritten) {
  EXPECT_THAT(ReportFile::open(path("none/report")),
              fails_with("none/report cannot be written: No such file"));
  auto full = value_of(ReportFile::open("/dev/full"));
  EXPECT_THAT(full.write("text"), fails_with("No space left on device"));
}

TEST(ExitStatus, IsOneIfAnyRowIsWrong) {
  auto wrong = row(Operation::all_reduce, 64, 1);
  wrong.measured.wrong = 1;
  const auto right = row(Operation::all_reduce, 64, 1);
  EXPECT_EQ(exit_status({right, right}), 0);
  EXPECT_EQ(exit_status({right, wrong, right}), 1);
}

TEST(Table, HasTheColumnsOfNcclTests) {
  const auto head = table_head(Operation::reduce, false, false);
  std::istringstream lines(head);
  std::vector<std::string> all;
  for (std::string line; std::getline(lines, line);) all.push_back(line);
  ASSERT_EQ(all.size(), 4U);
  EXPECT_THAT(words(all[2]), ElementsAre("#", "size", "count", "type", "redop", "root", "time",
                                         "algbw", "busbw", "#wrong", "limit", "algorithm"));
  EXPECT_THAT(
      words(table_line(row(Operation::reduce, 1000, 2))),
      ElementsAre("1000", "250", "float32", "sum", "2", "2.00", "0.50", "0.50", "0", "-", "ring"));
  EXPECT_EQ(all[2].find("time") + 4, table_line(row(Operation::reduce, 1000, 2)).find("2.00") + 4)
      << "columns are aligned with their names";
}

TEST(Table, EndsWithTheMeanOfTheBusBandwidths) {
  // 1 and 3 GB/s, multiplied by 1.5 for 4 ranks.
  EXPECT_EQ(average_line(std::vector{row(Operation::all_reduce, 1000, 1),
                                     row(Operation::all_reduce, 3000, 1)}),
            "# average bus bandwidth: 3 GB/s\n");
}

TEST(Table, SaysNoneWhereThereIsNoReductionOrRoot) {
  EXPECT_THAT(words(table_line(row(Operation::all_to_all, 1000, 1))),
              ElementsAre("1000", "250", "float32", "none", "-1", "1.00", "1.00", "0.75", "0", "-",
                          "ring"));
}

TEST(Table, SaysWhatShareOfTheMemorysBandwidthARowReaches) {
  auto limited = row(Operation::all_reduce, 1000, 8);
  limited.limit = 6.0;
  EXPECT_EQ(words(table_line(limited)).at(9), "75");
}

TEST(Baseline, GivesTheRatioToTheSameMeasurementAlone) {
  auto now = row(Operation::all_gather_v, 1024, 10);
  now.parts = Parts::even;
  const auto earlier = value_of(Baseline::parse(to_json({}, {now}), "before.json"));
  now.measured.microseconds.p50 = 5;
  EXPECT_EQ(earlier.ratio(now), 2.0);
  const std::pair<const char*, void (*)(BenchRow&)> others[] = {
      {"operation", [](BenchRow& other) { other.operation = Operation::all_to_all_v; }},
      {"size", [](BenchRow& other) { other.size = {2048}; }},
      {"place", [](BenchRow& other) { other.in_place = true; }},
      {"parts", [](BenchRow& other) { other.parts = Parts::one; }},
      {"offset", [](BenchRow& other) { other.offset = {4}; }},
      {"memory", [](BenchRow& other) { other.allocated = true; }},
      {"device", [](BenchRow& other) { other.on_device = true; }},
      {"stream", [](BenchRow& other) { other.on_stream = true; }}};
  for (const auto& [what, change] : others) {
    BenchRow other = now;
    change(other);
    EXPECT_FALSE(earlier.ratio(other)) << what;
  }
}

TEST(Baseline, TakesReportsThatTellNothingOfBuffersAndParts) {
  auto uneven = row(Operation::all_gather_v, 1024, 10);
  uneven.parts = Parts::rising;
  auto report = nlohmann::json::parse(to_json({}, {uneven, row(Operation::reduce, 64, 10)}));
  for (auto& result : report["results"]) {
    result.erase("offset");
    result.erase("allocated");
    result.erase("device");
    result.erase("stream");
    result.erase("parts");
  }
  const auto earlier = value_of(Baseline::parse(report.dump(), "old.json"));
  EXPECT_TRUE(earlier.ratio(uneven));
  EXPECT_TRUE(earlier.ratio(row(Operation::reduce, 64, 5)));
}

TEST(Baseline, RefusesWhatIsNoReportAndNamesTheFile) {
  for (const char* text : {"", "[]", "{}", "{\"schema\": 1}", "{\"schema\": 2, \"results\": []}",
                           "{\"schema\": 1, \"results\": [{}]}",
                           "{\"schema\": 1, \"results\": [{\"time_us\": {\"p50\": \"x\"}}]}"}) {
    const auto read = Baseline::parse(text, "odd.json");
    ASSERT_FALSE(read) << text;
    EXPECT_THAT(read, fails_with("odd.json")) << text;
  }
  EXPECT_FALSE(Baseline::read("/nonexistent/before.json"));
  EXPECT_EQ(Baseline::read("/dev/zero").status().message(),
            "--baseline /dev/zero: it must be a file of at most 64 MiB");
}

}  // namespace
}  // namespace xylem::tools
