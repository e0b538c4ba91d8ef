// SPDX-License-Identifier: Apache-2.0
//
// The tuning file: values that are saved and read are unchanged. A damaged file, or a file that is
// not a tuning file, is refused with a message, and is not changed.
#include "runtime/src/tuning_file.h"

#include "support/file_size_limit.h"
#include "support/outcome.h"
#include "support/temporary_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

namespace xylem::runtime {
namespace {

using collectives::CostModel;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

class TuningFile : public testing::Test {
 protected:
  void write(const std::string& text) const { directory.write("tuning.json", text); }
  std::string content() const {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  /// Returns the contents of a file with an entry for this machine.
  json saved() const {
    EXPECT_TRUE(save(path, measured()));
    return json::parse(content());
  }
  static Deadline soon() { return Deadline::after(std::chrono::seconds(20)); }
  static Result<std::optional<Tuning>> load(const std::string& file, const Tuning& tuning) {
    return load_tuning(file, tuning, soon());
  }
  static Status save(const std::string& file, const Tuning& tuning) {
    return save_tuning(file, tuning, soon());
  }
  static Tuning measured() {
    Tuning tuning;
    CostModel& model = tuning.model;
    model.local = {2.5, 7.5};
    model.host = {0, 0, 1};
    tuning.network = {{20.0, 6.5, 3.5, 1.5, {1.5, 0, 0, 0}},
                      {21.0, 7.5, 3.25, 1.25, {1.5, 0, 0, 0}}};
    tuning.ports = "eth0 1000 Mb/s, MTU 1500, 10.0.0.0/24\n";
    model.compute.reduce_GBps = 9.0;
    model.compute.copy_GBps = 11.0;
    tuning.pull_from = 65536;
    return tuning;
  }
  void expect_damaged(const std::string& text, const std::string& sentence) const {
    SCOPED_TRACE(text);
    write(text);
    const auto loaded = load(path, measured());
    EXPECT_THAT(loaded,
                fails_as(Code::invalid_argument, "XYLEM_TUNING=" + path, sentence, "remove it"));
  }

  const test::TemporaryDirectory directory;
  const std::string folder = directory.path();
  std::string path = folder + "/tuning.json";
};

TEST_F(TuningFile, IsReadOnlyIfItIsAFileOfABoundedSize) {
  const auto error_of = [](const std::string& file) {
    const auto loaded = load(file, measured());
    return loaded ? std::string() : std::string(loaded.status().message());
  };
  EXPECT_THAT(error_of("/dev/zero"), HasSubstr("XYLEM_TUNING=/dev/zero: it must be a regular"));
  EXPECT_THAT(error_of(folder), HasSubstr("must be a regular file"));
  const std::string fifo = folder + "/fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THAT(error_of(fifo), HasSubstr("must be a regular file"));
  write("{}");
  std::filesystem::resize_file(path, std::uintmax_t{17} << 20);
  EXPECT_THAT(error_of(path), HasSubstr("16 MiB"));
}

TEST_F(TuningFile, IsNothingWhereThereIsNone) {
  const auto loaded = value_of(load(path, Tuning()));
  EXPECT_FALSE(loaded.has_value());
}

TEST_F(TuningFile, GivesBackWhatWasSaved) {
  ASSERT_TRUE(save(path, measured()));
  const auto loaded = value_of(load(path, measured()));
  ASSERT_TRUE(loaded.has_value());
  EXPECT_EQ(loaded.value_or(Tuning()).pull_from, std::optional<std::uint64_t>(65536));
  const CostModel model = loaded.value_or(Tuning()).model;
  EXPECT_EQ(model.local.alpha_us, 2.5);
  const auto& network = loaded.value_or(Tuning()).network;
  ASSERT_EQ(network.size(), 2U);
  EXPECT_EQ(network[1].half_trip_us, 21.0);
  EXPECT_EQ(network[1].send_us, 7.5);
  EXPECT_EQ(network[1].message_us, 3.25);
  EXPECT_EQ(network[1].flow_GBps, 1.25);
  EXPECT_EQ(network[1].host_GBps, (std::array<double, kMostRounds>{1.5, 0, 0, 0}));
  EXPECT_EQ(model.compute.reduce_GBps, 9.0);
  EXPECT_EQ(model.compute.copy_GBps, 11.0);
}

TEST_F(TuningFile, IsOfNoUseInAnotherNetwork) {
  ASSERT_TRUE(save(path, measured()));
  Tuning faster = measured(), larger = measured(), alone = measured();
  faster.ports = "eth0 10000 Mb/s, MTU 9000, 10.0.0.0/24\n";
  larger.model.host = {0, 1, 2};
  alone.model.host = {0, 0, 0};
  for (const Tuning& other : {faster, larger, alone}) {
    EXPECT_FALSE(value_of(load(path, other)).has_value());
  }
  EXPECT_TRUE(value_of(load(path, measured())).has_value());
}

TEST_F(TuningFile, IsWrittenPastWhatOthersPutInItsWay) {
  const std::string precious = directory.write("precious", "mine");
  const std::string draft = path + "." + std::to_string(::getpid());
  ASSERT_EQ(::symlink(precious.c_str(), draft.c_str()), 0);
  EXPECT_TRUE(save(path, measured()));
  EXPECT_EQ(std::filesystem::file_size(precious), 4U);
  ASSERT_EQ(::mkfifo(draft.c_str(), 0600), 0);
  EXPECT_TRUE(save(path, measured()));
  EXPECT_FALSE(std::filesystem::exists(draft));
}

TEST_F(TuningFile, BeyondTheLimitOfFilesIsNotWritten) {
  Status saved;
  {
    const test::FileSizeLimit limit(8);
    saved = save(path, measured());
  }
  EXPECT_THAT(saved, AllOf(fails_with("XYLEM_TUNING=" + path), fails_with("ulimit -f")));
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

TEST_F(TuningFile, TellsThatNothingIsPulled) {
  Tuning tuning = measured();
  tuning.pull_from = transport::kAnySize;
  ASSERT_TRUE(save(path, tuning));
  const auto loaded = load(path, measured());
  ASSERT_TRUE(loaded && loaded->has_value());
  EXPECT_EQ(loaded->value_or(measured()).pull_from, std::optional(transport::kAnySize));
}

TEST_F(TuningFile, OfAnEarlierVersionIsMeasuredAgain) {
  const json content = saved();
  for (const char* const member : {"pull_from", "network"}) {
    json earlier = content;
    for (auto& entry : earlier["machines"]) entry.erase(member);
    write(earlier.dump());
    EXPECT_FALSE(value_of(load(path, measured())).has_value()) << member;
  }
}

TEST_F(TuningFile, KeepsTheEntriesOfOtherMachines) {
  write(R"({"schema": 1, "machines": {"other": {"whatever": [1]}}})");
  ASSERT_TRUE(save(path, measured()));
  const json content = json::parse(this->content());
  EXPECT_EQ(content["machines"].size(), 2U);
  EXPECT_EQ(content["machines"]["other"], json::parse(R"({"whatever": [1]})"));
}

TEST_F(TuningFile, OfAnotherFormIsRefusedAndLeftAsItIs) {
  const std::vector<std::string> documents = {
      "",
      "not JSON",
      "null",
      "1",
      "\"schema\"",
      "[]",
      R"([{"schema": 1, "machines": {}}])",
      R"({})",
      R"({"machines": {}})",
      R"({"schema": null, "machines": {}})",
      R"({"schema": "1", "machines": {}})",
      R"({"schema": true, "machines": {}})",
      R"({"schema": [1], "machines": {}})",
      R"({"schema": {"schema": 1}, "machines": {}})",
      R"({"schema": 1.5, "machines": {}})",
      R"({"schema": -1, "machines": {}})",
      R"({"schema": 2, "machines": {}})",
      R"({"schema": 4294967297, "machines": {}})",
      R"({"schema": 18446744073709551615, "machines": {}})",
      R"({"schema": 1e400, "machines": {}})",
      R"({"schema": 1})",
      R"({"schema": 1, "machines": null})",
      R"({"schema": 1, "machines": []})",
      R"({"schema": 1, "machines": "none"})",
      R"({"schema": 1, "machines": {"a": 1e400}})",
      R"({"schema": 1, "machines": {"a": NaN}})",
      R"({"schema": 1, "machines": {)",
      "{\"schema\": 1, \"machines\": {\"\xff\": 1}}",
  };
  for (const std::string& text : documents) {
    expect_damaged(text, "not a tuning file of schema 1");
    EXPECT_EQ(save(path, measured()).code(), Code::invalid_argument);
    EXPECT_EQ(content(), text) << "a foreign file must not be overwritten";
  }
}

TEST_F(TuningFile, WhoseEntryIsDamagedIsRefused) {
  const json right = saved();
  const std::string key = right["machines"].begin().key();
  const auto expect_bad_entry = [&](const json& entry) {
    json file = right;
    file["machines"][key] = entry;
    expect_damaged(file.dump(), "the entry of this machine (" + key + ") is damaged");
  };
  const std::vector<json> wrong = {nullptr,
                                   true,
                                   "7",
                                   json::array({7}),
                                   json::object(),
                                   0,
                                   -1,
                                   -2.5,
                                   1e9,
                                   1e300,
                                   1e-300,
                                   std::numeric_limits<std::uint64_t>::max(),
                                   std::numeric_limits<std::int64_t>::min()};
  // Each value is tried only at some places, since every reading identifies the machine again,
  // which takes time.
  const std::vector<std::string> places = {
      "/local",
      "/network",
      "/local/alpha_us",
      "/network/1/send_us",
      "/network/0/host_GBps/2",
      "/local/bandwidth_GBps",
      "/reduce_GBps",
      "/copy_GBps",
  };
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    expect_bad_entry(wrong[i]);
    for (const std::size_t place : {i, i + 3}) {
      json entry = right["machines"][key];
      entry[json::json_pointer(places[place % places.size()])] = wrong[i];
      expect_bad_entry(entry);
    }
  }
  for (const json& size : {json("64K"), json(-1), json(0), json(1.5), json::array()}) {
    json entry = right["machines"][key];
    entry["pull_from"] = size;
    expect_bad_entry(entry);
  }
  for (const char* const member : {"local", "reduce_GBps", "copy_GBps"}) {
    json entry = right["machines"][key];
    entry.erase(member);
    expect_bad_entry(entry);
  }
}

TEST_F(TuningFile, ThatIsAFolderIsRefused) {
  path = folder;
  const auto loaded = load(path, Tuning());
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.status().code(), Code::invalid_argument);
}

}  // namespace
}  // namespace xylem::runtime
