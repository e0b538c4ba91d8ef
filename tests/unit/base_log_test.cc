// SPDX-License-Identifier: Apache-2.0
//
// The logger: its options, the format of a line, its sinks, and lines written by many threads.
#include "support/file_size_limit.h"
#include "support/outcome.h"
#include "support/temporary_directory.h"
#include "xylem/base/log.h"
#include "xylem/base/unique_fd.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <thread>
#include <vector>

namespace xylem {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

/// Creates a directory for each test.
class LogFile : public ::testing::Test {
 protected:
  std::string path(std::string_view file) const { return directory_ / file; }

  std::vector<std::string> lines(std::string_view file) const {
    std::ifstream in(directory_ / file);
    std::vector<std::string> result;
    for (std::string line; std::getline(in, line);) result.push_back(line);
    return result;
  }

  Logger open(LogLevel level, std::string_view file, LogIdentity identity = {}) const {
    return value_of(Logger::open({level, path(file)}, std::move(identity)));
  }

 private:
  const test::TemporaryDirectory temporary_;
  const fs::path directory_ = temporary_.path();
};

TEST(LogOptions, ReadLevelAndFile) {
  for (const char* level : {"off", "error", "warn", "info", "debug", "trace"}) {
    const auto options = parse_log_options(level);
    ASSERT_TRUE(options) << level;
    EXPECT_EQ(name(options->level), level);
    EXPECT_TRUE(options->file.empty());
  }
  const auto options = value_of(parse_log_options("debug,file=/tmp/a,b_%r_%h_%p_%%.log"));
  EXPECT_EQ(options.level, LogLevel::debug);
  EXPECT_EQ(options.file, "/tmp/a,b_%r_%h_%p_%%.log");
}

TEST(LogOptions, RefuseWhatTheyDoNotKnow) {
  for (const char* text :
       {"", "loud", "Warn", "warn,", "warn,file=", "warn,path=x", "file=x", "warn ,file=x"}) {
    EXPECT_EQ(parse_log_options(text).code(), Code::invalid_argument) << text;
  }
  EXPECT_THAT(parse_log_options("loud"), fails_with("\"loud\""));
  for (const char* text : {"warn,file=a%", "warn,file=%q", "warn,file=%R"}) {
    EXPECT_THAT(parse_log_options(text), fails_with("%r (rank)"));
  }
}

TEST_F(LogFile, LineBearsTimeLevelRankHostAndCommunicator) {
  const Logger logger = open(LogLevel::info, "log", {"host-a", 3, "world.dp"});
  logger.warn("link eth0 down");
  const auto written = lines("log");
  ASSERT_EQ(written.size(), 1U);
  EXPECT_TRUE(std::regex_match(
      written[0],
      std::regex(
          R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z warn  rank 3 host-a world\.dp: link eth0 down)")))
      << written[0];
}

TEST_F(LogFile, LineSaysWhatIsNotKnownYet) {
  open(LogLevel::info, "log").error("no memory");
  ASSERT_EQ(lines("log").size(), 1U);
  EXPECT_THAT(lines("log")[0], HasSubstr("Z error rank unknown -: no memory"));
}

TEST_F(LogFile, MessageOfSeveralLinesStaysOneLine) {
  open(LogLevel::info, "log").info("first\nsecond\n");
  ASSERT_EQ(lines("log").size(), 1U);
  EXPECT_THAT(lines("log")[0], HasSubstr(R"(: first\nsecond\n)"));
}

TEST_F(LogFile, WritesOnlyEnabledLevels) {
  const Logger logger = open(LogLevel::warn, "log");
  EXPECT_TRUE(logger.enabled(LogLevel::error));
  EXPECT_TRUE(logger.enabled(LogLevel::warn));
  EXPECT_FALSE(logger.enabled(LogLevel::info));
  EXPECT_FALSE(logger.enabled(LogLevel::off));
  logger.info("not this");
  logger.write(LogLevel::off, "nor this");
  logger.error("this");
  ASSERT_EQ(lines("log").size(), 1U);
  EXPECT_THAT(lines("log")[0], HasSubstr(": this"));
}

TEST_F(LogFile, LevelOffWritesNothing) {
  const Logger logger = open(LogLevel::off, "log");
  EXPECT_FALSE(logger.enabled(LogLevel::error));
  logger.error("not this");
  EXPECT_TRUE(lines("log").empty());
}

TEST_F(LogFile, PathBearsRankHostAndProcess) {
  open(LogLevel::info, "%r_%h_%p_%%.log", {"host-a", 12, ""}).info("here");
  EXPECT_EQ(lines("12_host-a_" + std::to_string(::getpid()) + "_%.log").size(), 1U);
  open(LogLevel::info, "%r.log").info("here");
  EXPECT_EQ(lines("unknown.log").size(), 1U);
}

TEST_F(LogFile, AppendsToAnExistingFile) {
  open(LogLevel::info, "log").info("one");
  open(LogLevel::info, "log").info("two");
  EXPECT_EQ(lines("log").size(), 2U);
}

TEST_F(LogFile, FileThatCannotBeOpenedIsAnErrorNamingIt) {
  const auto logger = Logger::open({LogLevel::info, path("missing/log")}, {});
  EXPECT_THAT(logger, fails_as(Code::invalid_argument, "missing/log", "No such file"));
}

/// Returns the text that a pipe contains at this moment.
std::string read_now(const UniqueFd& pipe) {
  std::string text(1 << 20, '\0');
  const ssize_t got = ::read(pipe.get(), text.data(), text.size());
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return text;
}

TEST_F(LogFile, FifoWithoutAReaderIsAnErrorAtOnce) {
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  EXPECT_THAT(Logger::open({LogLevel::info, path("fifo")}, {}),
              fails_as(Code::invalid_argument, "start the reader of a FIFO"));
}

TEST_F(LogFile, FifoThatIsNotReadLosesLinesAndSaysSo) {
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  const UniqueFd reader(::open(path("fifo").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  const Logger logger = open(LogLevel::info, "fifo");
  constexpr int kLines = 2000;  // More than the 64 KiB that fit into a pipe.
  for (int i = 0; i < kLines; ++i) logger.info(std::string(100, 'x'));
  const std::string kept = read_now(reader);
  const auto lines = std::count(kept.begin(), kept.end(), '\n');
  EXPECT_GT(lines, 100);
  EXPECT_TRUE(kept.ends_with("xx\n")) << "lines are whole";
  logger.info("the next");
  const std::string next = read_now(reader);
  EXPECT_THAT(next, HasSubstr(std::to_string(kLines - lines) + " lines before this one could not"));
  EXPECT_TRUE(next.ends_with(": the next\n")) << next;
}

TEST_F(LogFile, FifoWhoseReaderHasGoneEndsNothing) {
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  UniqueFd reader(::open(path("fifo").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  const Logger logger = open(LogLevel::info, "fifo");
  reader.reset();
  logger.info("nobody reads");
  reader.reset(::open(path("fifo").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  logger.info("somebody reads");
  const std::string text = read_now(reader);
  EXPECT_THAT(text, HasSubstr("1 lines before this one"));
  EXPECT_THAT(text, HasSubstr("somebody reads"));
}

TEST_F(LogFile, ThatMayNotGrowEndsNothing) {
  const Logger logger = open(LogLevel::info, "log");
  logger.info("before");
  {
    const test::FileSizeLimit limit(10);
    logger.info("beyond the limit");
  }
  logger.info("after");
  const auto written = lines("log");
  ASSERT_EQ(written.size(), 3U);
  EXPECT_THAT(written[1], HasSubstr("warn  rank unknown -: 1 lines before this one"));
  EXPECT_THAT(written[2], HasSubstr(": after"));
}

TEST_F(LogFile, CopyUnderAnotherIdentitySharesTheSink) {
  const Logger logger = open(LogLevel::info, "log", {"host-a", 1, ""});
  const Logger other = logger.as({"host-a", 1, "world"});
  EXPECT_EQ(other.identity().communicator, "world");
  EXPECT_TRUE(logger.identity().communicator.empty());
  logger.info("mine");
  other.info("yours");
  const auto written = lines("log");
  ASSERT_EQ(written.size(), 2U);
  EXPECT_THAT(written[0], HasSubstr("rank 1 host-a: mine"));
  EXPECT_THAT(written[1], HasSubstr("rank 1 host-a world: yours"));
}

TEST_F(LogFile, LinesOfManyThreadsNeverMix) {
  constexpr int kThreads = 4;
  constexpr int kLines = 200;
  const Logger logger = open(LogLevel::info, "log");
  const std::string body(700, 'x');
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const Logger mine = logger.as({"host-a", t, ""});
      for (int i = 0; i < kLines; ++i) mine.info(body);
    });
  }
  for (auto& thread : threads) thread.join();
  const auto written = lines("log");
  ASSERT_EQ(written.size(), static_cast<std::size_t>(kThreads * kLines));
  for (const auto& line : written) {
    EXPECT_TRUE(line.ends_with("host-a: " + body)) << line;
    EXPECT_EQ(line.size(), written[0].size());
  }
}

/// In this test, standard error is a packet socket. Each write(2) to it makes one packet.
TEST(Logger, LineIsOneWriteToStandardError) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  const UniqueFd saved(::dup(STDERR_FILENO));
  ASSERT_GE(::dup2(writer.get(), STDERR_FILENO), 0);
  {
    const auto logger = Logger::open({LogLevel::info, ""}, {"host-a", 0, "world"});
    if (logger) {
      logger->info("one");
      logger->error("two");
    }
  }
  ::dup2(saved.get(), STDERR_FILENO);
  writer.reset();

  std::vector<std::string> packets;
  std::array<char, 4096> packet{};
  for (ssize_t size = 0; (size = ::recv(reader.get(), packet.data(), packet.size(), 0)) > 0;) {
    packets.emplace_back(packet.data(), static_cast<std::size_t>(size));
  }
  ASSERT_EQ(packets.size(), 2U);
  EXPECT_TRUE(packets[0].ends_with("rank 0 host-a world: one\n")) << packets[0];
  EXPECT_TRUE(packets[1].ends_with("rank 0 host-a world: two\n")) << packets[1];
}

TEST(Logger, WithoutASinkDropsEverything) {
  const Logger logger;
  EXPECT_FALSE(logger.enabled(LogLevel::error));
  EXPECT_EQ(logger.identity().rank, -1);
  EXPECT_EQ(logger.as({"host-a", 2, ""}).identity().rank, 2);
  ::testing::internal::CaptureStderr();
  logger.error("nobody hears");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace xylem
