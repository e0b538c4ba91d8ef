// SPDX-License-Identifier: Apache-2.0
//
// The configuration table: precedence, invalid values, and the generated page.
#include "runtime/src/config/config.h"

#include "runtime/src/config/config_table.h"
#include "support/outcome.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>
#include <utility>

namespace xylem::runtime {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;

std::string error_of(const Environment& environment, const Options& options = {}) {
  const auto loaded = load_config(environment, options);
  if (loaded) return "";
  EXPECT_EQ(loaded.code(), Code::invalid_argument);
  return std::string(loaded.status().message());
}

const ConfigRow& row(const LoadedConfig& loaded, std::string_view name) {
  for (const ConfigRow& each : loaded.rows) {
    if (each.name == name) return each;
  }
  ADD_FAILURE() << "no row " << name;
  return loaded.rows.front();
}

TEST(Config, DefaultsAreThoseOfTheTable) {
  const auto loaded = value_of(load_config({}, {}));
  EXPECT_EQ(loaded.rows.size(), settings().size());
  for (const ConfigRow& each : loaded.rows) {
    EXPECT_EQ(each.value, each.default_value) << each.name;
    EXPECT_EQ(each.origin, "default") << each.name;
    EXPECT_FALSE(each.sentence.empty()) << each.name;
  }
  EXPECT_EQ(loaded.config.start_timeout, seconds(60));
  EXPECT_EQ(loaded.config.timeout, minutes(30));
  EXPECT_EQ(loaded.config.slice, Bytes{256 * 1024});
}

TEST(Config, EveryExampleIsTakenAndShownAsSet) {
  for (const Setting& setting : settings()) {
    const auto loaded =
        load_config({{std::string(setting.name), std::string(setting.example)}}, {});
    ASSERT_TRUE(loaded) << setting.name << ": " << loaded.status().to_string();
    EXPECT_EQ(row(*loaded, setting.name).origin, "environment");
    EXPECT_NE(row(*loaded, setting.name).value, "") << setting.name;
  }
}

TEST(Config, NamesAndFieldsAreUnique) {
  std::set<std::string_view> names;
  std::set<std::string_view> fields;
  for (const Setting& setting : settings()) {
    EXPECT_TRUE(names.insert(setting.name).second) << setting.name;
    EXPECT_TRUE(fields.insert(setting.field).second) << setting.field;
    EXPECT_TRUE(setting.name.starts_with("XYLEM_")) << setting.name;
  }
}

TEST(Config, TheEnvironmentSetsEveryField) {
  const auto loaded = value_of(load_config({{"XYLEM_RANK", "3"},
                                            {"XYLEM_SIZE", "8"},
                                            {"XYLEM_RENDEZVOUS", "tcp://[fd00::1]:4000"},
                                            {"XYLEM_START_TIMEOUT", "1.5s"},
                                            {"XYLEM_ALGORITHM", "all_reduce=ring"},
                                            {"XYLEM_SLICE", "64K"},
                                            {"XYLEM_WAIT", "sleep"},
                                            {"XYLEM_PROGRESS_THREAD", "off"},
                                            {"XYLEM_LOG", "debug,file=/tmp/x%r"}},
                                           {}));
  const Config& config = loaded.config;
  EXPECT_EQ(config.rank, 3U);
  EXPECT_EQ(config.size, 8U);
  EXPECT_EQ(config.rendezvous, "tcp://[fd00::1]:4000");
  EXPECT_EQ(config.start_timeout, milliseconds(1500));
  EXPECT_EQ(config.algorithm, "all_reduce=ring");
  EXPECT_EQ(config.slice, Bytes{64 * 1024});
  EXPECT_EQ(config.wait, WaitMode::sleep);
  EXPECT_FALSE(config.progress_thread);
  EXPECT_EQ(config.log.level, LogLevel::debug);
  EXPECT_EQ(row(loaded, "XYLEM_LOG").value, "debug,file=/tmp/x%r");
}

TEST(Config, TheEnvironmentWinsOverAFallbackOfTheProgram) {
  Options options;
  options.fallback_secret = "shared";
  const auto alone = value_of(load_config({}, options));
  EXPECT_EQ(alone.config.secret, "shared");
  EXPECT_EQ(row(alone, "XYLEM_SECRET").origin, "program");
  const auto both = value_of(load_config({{"XYLEM_SECRET", "own"}}, options));
  EXPECT_EQ(both.config.secret, "own");
  EXPECT_EQ(row(both, "XYLEM_SECRET").origin, "environment");
}

TEST(Config, TheProgramWinsOverTheEnvironment) {
  Options options;
  options.rank = 1;
  options.start_timeout = milliseconds(250);
  options.transport = "ucx-tcp";
  options.require = "tcp";
  const auto loaded = value_of(load_config({{"XYLEM_RANK", "7"},
                                            {"XYLEM_TRANSPORT", "shm"},
                                            {"XYLEM_REQUIRE", "shm"},
                                            {"XYLEM_SIZE", "9"}},
                                           options));
  EXPECT_EQ(loaded.config.rank, 1U);
  EXPECT_EQ(loaded.config.start_timeout, milliseconds(250));
  EXPECT_EQ(loaded.config.transport, "ucx-tcp");
  EXPECT_EQ(loaded.config.require, Requirement::tcp);
  EXPECT_EQ(row(loaded, "XYLEM_RANK").origin, "program");
  EXPECT_EQ(row(loaded, "XYLEM_SIZE").origin, "environment");
  EXPECT_EQ(row(loaded, "XYLEM_WINDOW").origin, "default");
}

TEST(Config, AProgramsBadValueIsRefusedLikeOneOfTheEnvironment) {
  Options options;
  options.transport = "carrier-pigeon";
  EXPECT_THAT(error_of({}, options),
              AllOf(HasSubstr("carrier-pigeon"), HasSubstr("program"), HasSubstr("ucx-tcp")));
}

TEST(Config, AnUnknownVariableNamesTheNearest) {
  EXPECT_THAT(error_of({{"XYLEM_TRANPORT", "auto"}}),
              AllOf(HasSubstr("XYLEM_TRANPORT"), HasSubstr("did you mean XYLEM_TRANSPORT?")));
  EXPECT_THAT(error_of({{"XYLEM_INTERFACE", "eth0"}}), HasSubstr("XYLEM_INTERFACES"));
  EXPECT_THAT(error_of({{"XYLEM_", ""}}), HasSubstr("is not a setting"));
}

TEST(Config, OtherPeoplesVariablesAreNotOurs) {
  EXPECT_EQ(error_of({{"XYLE", "1"}, {"XYLEMS", "1"}, {"MY_XYLEM_RANK", "x"}, {"PATH", "/bin"}}),
            "");
}

TEST(Config, ABadValueNamesValueRuleAndExample) {
  struct Case {
    const char* name;
    const char* value;
    const char* rule;
  };
  const Case cases[] = {
      {"XYLEM_RANK", "-1", "whole number from 0"},
      {"XYLEM_RANK", "1x", "whole number"},
      {"XYLEM_RANK", "", "whole number"},
      {"XYLEM_SIZE", "0", "from 1"},
      {"XYLEM_SIZE", "99999999999999999999", "whole number"},
      {"XYLEM_RENDEZVOUS", "node1:29400", "tcp://host:port"},
      {"XYLEM_RENDEZVOUS", "tcp://node1", "host:port"},
      {"XYLEM_RENDEZVOUS", "tcp://node1:0", "1 to 65535"},
      {"XYLEM_RENDEZVOUS", "tcp://fd00::1:29400", "brackets"},
      {"XYLEM_RENDEZVOUS", "file://relative", "absolute"},
      {"XYLEM_JOB", "two words", "without blanks"},
      {"XYLEM_START_TIMEOUT", "0", "from 1 ms"},
      {"XYLEM_TIMEOUT", "soon", "duration"},
      {"XYLEM_STALL_REPORT", "-3s", "duration"},
      {"XYLEM_TRANSPORT", "udp", "ucx-tcp"},
      {"XYLEM_REQUIRE", "ucx-rdma", "it must be one of shm, tcp, rdma"},
      {"XYLEM_PROTECTION", "tls", "encrypt"},
      {"XYLEM_ALGORITHM", "all_reduce=", "has no algorithm \"\", but"},
      {"XYLEM_ALGORITHM", "foo", "there is no algorithm \"foo\", but recursive_doubling"},
      {"XYLEM_ALGORITHM", "ring,foo", "operation=algorithm"},
      {"XYLEM_ALGORITHM", "all_reduce=nonsense", "all_reduce has no algorithm \"nonsense\", but"},
      {"XYLEM_ALGORITHM", "all_produce=ring", "all_produce"},
      {"XYLEM_INTERFACES", "eth0,,eth1", "commas"},
      {"XYLEM_INTERFACES", "eth0,^eth1", "one ^"},
      {"XYLEM_DEVICES", "^", "names"},
      {"XYLEM_SLICE", "100", "multiple of 64"},
      {"XYLEM_SLICE", "2G", "at most 1 GiB"},
      {"XYLEM_WINDOW", "0", "from 1"},
      {"XYLEM_WAIT", "patiently", "spin"},
      {"XYLEM_PROGRESS_THREAD", "perhaps", "on or off"},
      {"XYLEM_TUNING", "cache.json", "with a /"},
      {"XYLEM_LOG", "loud", "log level"},
  };
  for (const Case& each : cases) {
    EXPECT_THAT(error_of({{each.name, each.value}}),
                AllOf(HasSubstr(each.name), HasSubstr("\"" + std::string(each.value) + "\""),
                      HasSubstr(each.rule), HasSubstr("for example"), HasSubstr("environment")))
        << each.name << "=" << each.value;
  }
}

TEST(Config, EachRequirementIsShownAsItIsWritten) {
  EXPECT_EQ(value_of(load_config({}, {})).config.require, Requirement::none);
  for (const auto& [text, requirement] :
       {std::pair{"shm", Requirement::shm}, std::pair{"tcp", Requirement::tcp},
        std::pair{"rdma", Requirement::rdma}}) {
    const auto loaded = value_of(load_config({{"XYLEM_REQUIRE", text}}, {}));
    EXPECT_EQ(loaded.config.require, requirement);
    EXPECT_EQ(row(loaded, "XYLEM_REQUIRE").value, text);
  }
}

TEST(Config, ASecretIsNeverShown) {
  const auto loaded = value_of(load_config({{"XYLEM_SECRET", "hunter2"}}, {}));
  EXPECT_EQ(loaded.config.secret, "hunter2");
  EXPECT_EQ(row(loaded, "XYLEM_SECRET").value, "(set)");
  EXPECT_THAT(error_of({{"XYLEM_SECRET", "hunter 2"}}), testing::Not(HasSubstr("hunter")));
}

TEST(Config, AgreedSettingsDifferExactlyWhereRanksMust) {
  const auto text = [](const Environment& environment) {
    return agreed_settings(load_config(environment, {}).value());
  };
  const std::string defaults = text({});
  EXPECT_EQ(text({{"XYLEM_RANK", "1"}, {"XYLEM_LOG", "info"}, {"XYLEM_TIMEOUT", "1s"}}), defaults);
  EXPECT_EQ(text({{"XYLEM_SLICE", "0.25M"}}), defaults);
  EXPECT_NE(text({{"XYLEM_SLICE", "128K"}}), defaults);
  EXPECT_THAT(text({{"XYLEM_ALGORITHM", "ring"}}), HasSubstr("XYLEM_ALGORITHM=ring\n"));
  EXPECT_THAT(text({{"XYLEM_REQUIRE", "rdma"}}), HasSubstr("XYLEM_REQUIRE=rdma\n"));
}

TEST(Config, TheProcessesEnvironmentIsReadWhole) {
  ASSERT_EQ(::setenv("CONFIG_TEST_VALUE", "a=b=c", 1), 0);
  EXPECT_EQ(process_environment().at("CONFIG_TEST_VALUE"), "a=b=c");
  ::unsetenv("CONFIG_TEST_VALUE");
  EXPECT_FALSE(process_environment().contains("CONFIG_TEST_VALUE"));
}

TEST(ConfigurationPage, IsWhatTheTablePrints) {
  const std::string path = XYLEM_TEST_DATA "/../docs/configuration.md";
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (text == configuration_page()) return;
  const std::string fresh = testing::TempDir() + "configuration.md";
  std::ofstream(fresh) << configuration_page();
  FAIL() << path << " differs from the table; to accept it: cp " << fresh << " " << path;
}

}  // namespace
}  // namespace xylem::runtime
