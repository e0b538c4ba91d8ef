// SPDX-License-Identifier: Apache-2.0
//
// The store in a shared directory.
#include "runtime/src/bootstrap/file_store.h"
#include "runtime/src/bootstrap/local_store.h"
#include "runtime/src/bootstrap/store_rules.h"
#include "support/control_ranks.h"
#include "support/file_size_limit.h"
#include "support/outcome.h"
#include "support/temporary_directory.h"
#include "xylem/base/hash.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <array>
#include <barrier>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace xylem::test {
namespace {

namespace fs = std::filesystem;
using runtime::bytes_of;
using runtime::FileStore;
using runtime::text_of;
using std::chrono::milliseconds;
using testing::AllOf;

class FileStoreIn : public testing::Test {
 protected:
  Result<std::shared_ptr<Store>> open(std::uint32_t rank,
                                      std::uint32_t size,
                                      Deadline deadline = soon_enough(),
                                      const std::string& job = "job") {
    return FileStore::open(directory, job, rank, size, deadline);
  }
  /// A whole start: every rank sets a value, and gets the values of all ranks.
  void start(std::uint32_t size, const std::string& word, const std::string& job = "job") {
    std::barrier all_have(static_cast<std::ptrdiff_t>(size));
    on_each_rank(size, [&](std::uint32_t rank) {
      const auto store = value_of(open(rank, size, soon_enough(), job));
      const std::string mine = word + std::to_string(rank);
      ASSERT_TRUE(store->set("word/" + std::to_string(rank), bytes_of(mine)));
      for (std::uint32_t other = 0; other < size; ++other) {
        const auto value = value_of(store->get("word/" + std::to_string(other), soon_enough()));
        EXPECT_EQ(text_of(value), word + std::to_string(other));
      }
      all_have.arrive_and_wait();
    });
  }
  std::size_t files() const {
    std::size_t count = 0;
    for (const auto& entry : fs::recursive_directory_iterator(directory))
      count += entry.exists() ? 1 : 0;
    return count;
  }

  /// True if a file with this name exists at any depth.
  bool has_file(const std::string& name) const {
    std::error_code ignored;
    for (fs::recursive_directory_iterator entry(directory, ignored), end; entry != end;
         entry.increment(ignored)) {
      if (entry->path().filename() == name) return true;
    }
    return false;
  }

  const TemporaryDirectory temporary;
  const std::string directory = temporary.path();
  std::array<std::uint32_t, 3> culprits{};
};

TEST_F(FileStoreIn, GivesEveryRankWhatAnyRankSetAndLeavesNothing) {
  for (const std::uint32_t size : {2U, 3U, 8U}) start(size, "hello ");
  EXPECT_EQ(files(), 0U);
}

TEST_F(FileStoreIn, JobsShareADirectoryWithoutMixing) {
  on_each_rank(2, [&](std::uint32_t which) {
    start(3, which == 0 ? "red" : "blue", which == 0 ? "a" : "b");
  });
  EXPECT_EQ(files(), 0U);
}

TEST_F(FileStoreIn, WhatAKilledStartLeftBehindIsNotBelieved) {
  // An interrupted start leaves its files. To simulate this, the test copies the files of a start
  // that continues, and restores them after the start.
  const std::string saved = directory + "-saved";
  std::barrier copied(2);
  on_each_rank(2, [&](std::uint32_t rank) {
    const auto store = value_of(open(rank, 2));
    ASSERT_TRUE(store->set("word/" + std::to_string(rank), bytes_of("stale")));
    ASSERT_TRUE(store->get("word/" + std::to_string(1 - rank), soon_enough()));
    if (rank == 0) fs::copy(directory, saved, fs::copy_options::recursive);
    copied.arrive_and_wait();
  });
  fs::remove_all(directory);
  fs::rename(saved, directory);
  EXPECT_GT(files(), 4U);
  start(2, "fresh");
  EXPECT_EQ(files(), 0U) << "the earlier start's files are gone, too";
}

TEST_F(FileStoreIn, WhatAStartWritesIsForItsUserAlone) {
  // The files must be private, even if the user's umask allows all access.
  const mode_t before = ::umask(0);
  std::vector<std::string> seen;
  std::barrier both_have(2);
  on_each_rank(2, [&](std::uint32_t rank) {
    const auto store = value_of(open(rank, 2));
    ASSERT_TRUE(store->set("word/" + std::to_string(rank), bytes_of("mine")));
    ASSERT_TRUE(store->get("word/" + std::to_string(1 - rank), soon_enough()));
    both_have.arrive_and_wait();
    if (rank == 0) {
      auto& start = dynamic_cast<runtime::StartStore&>(*store);
      EXPECT_FALSE(start.abandon(failure(Code::exhausted, "no room", 0)));
      for (const auto& entry : fs::recursive_directory_iterator(directory)) {
        if (entry.is_directory()) continue;
        seen.push_back(entry.path().filename());
        EXPECT_EQ(entry.status().permissions(), fs::perms::owner_read | fs::perms::owner_write)
            << entry.path();
      }
    }
    both_have.arrive_and_wait();
  });
  ::umask(before);
  EXPECT_THAT(seen, testing::IsSupersetOf({"hello.1", "session", "here.0", "here.1", "complete",
                                           "key.word%2f0", "key.word%2f1", "failed"}));
}

TEST_F(FileStoreIn, RankZeroNamesWhoIsMissing) {
  std::barrier both_know(2);
  on_each_rank(2, [&](std::uint32_t rank) {
    const auto store = open(rank, 3, Deadline::after(milliseconds(400)));
    if (rank == 0) {
      EXPECT_THAT(store, AllOf(fails_as(Code::timed_out), blames(2U)));
      EXPECT_THAT(std::string(store.status().message()),
                  testing::MatchesRegex("rank 2 did not come within .*; 0, 1 are here \\(in " +
                                        directory + "/xylem-.*\\)"));
    } else if (store) {
      const auto value = (*store)->get("never", Deadline::after(milliseconds(10)));
      EXPECT_EQ(value.status().peer(), 2U) << value.status().to_string();
    }
    both_know.arrive_and_wait();
  });
}

TEST_F(FileStoreIn, JobsOfDifferentSizesAreAMismatchForAll) {
  struct Stray {
    std::uint32_t rank, size;
  };
  // One of the strays has a rank number that does not exist in the job of the other ranks.
  for (const Stray stray : {Stray{1, 2}, Stray{7, 8}}) {
    on_each_rank(2, [&](std::uint32_t which) {
      const auto store = which == 0 ? open(0, 3) : open(stray.rank, stray.size);
      EXPECT_THAT(store, AllOf(fails_as(Code::mismatch), blames(stray.rank)));
      const std::string both = fmt::format(
          "rank {} was started in a job of {} ranks, rank 0 in one of 3", stray.rank, stray.size);
      EXPECT_THAT(store, fails_with(both));
    });
  }
}

TEST_F(FileStoreIn, ASecondProcessOfOneRankIsRefused) {
  const auto expect_busy = [](const Result<std::shared_ptr<Store>>& store) {
    EXPECT_THAT(store,
                AllOf(fails_as(Code::busy, "another process has come as rank 1"), blames(1U)));
  };
  const auto wait_for_file = [this](const char* name) {
    const Deadline deadline = soon_enough();
    while (!has_file(name) && !deadline.passed()) std::this_thread::yield();
  };
  // Before rank 0 joins, while rank 0 waits for rank 2, and after all ranks have joined.
  std::barrier meeting(3);
  on_each_rank(3, [&](std::uint32_t which) {
    if (which == 1) expect_busy(open(1, 3));
    if (which == 2) wait_for_file("hello.1");
    std::optional<Result<std::shared_ptr<Store>>> store;
    if (which == 2) store = open(1, 3);
    if (which == 1) store = open(0, 3);
    if (which == 0) {
      wait_for_file("here.1");
      expect_busy(open(1, 3));
      store = open(2, 3);
      EXPECT_TRUE((*store)->get()->get("complete", soon_enough()));
      expect_busy(open(1, 3, Deadline::after(milliseconds(100))));
    } else {
      EXPECT_TRUE(*store) << store->status().to_string();
      if (which == 1) {
        EXPECT_TRUE((**store)->set("complete", {}));
      }
    }
    meeting.arrive_and_wait();
  });
}

TEST_F(FileStoreIn, WhoGivesUpIsHeardByAll) {
  std::barrier all_have(3);
  on_each_rank(3, [&](std::uint32_t rank) {
    const auto store = value_of(open(rank, 3));
    auto& start = dynamic_cast<runtime::StartStore&>(*store);
    EXPECT_TRUE(start.verdict());
    all_have.arrive_and_wait();
    Status heard;
    if (rank == 0) {
      heard = store->get("never", soon_enough()).status();
    } else {
      heard = start.abandon(failure(Code::exhausted, "no room", rank));
    }
    EXPECT_EQ(heard.code(), Code::exhausted);
    EXPECT_EQ(heard.message(), "no room");
    EXPECT_EQ(start.verdict().peer(), heard.peer());
    culprits[rank] = heard.peer().value_or(0);
    all_have.arrive_and_wait();
    EXPECT_EQ(culprits[rank], culprits[0]) << "all ranks name the same culprit";
  });
}

TEST_F(FileStoreIn, AMissingRankZeroIsNamed) {
  const auto store = open(1, 2, Deadline::after(milliseconds(50)));
  EXPECT_THAT(store, AllOf(fails_as(Code::timed_out, directory), blames(0U)));
}

TEST_F(FileStoreIn, ADirectoryThatDoesNotExistIsNamedAtOnceAndNotMade) {
  std::ofstream(directory + "/file") << "x";
  for (const char* const name : {"/file", "/missing", "/missing/below"}) {
    for (const std::uint32_t rank : {0U, 1U}) {
      const auto store = FileStore::open(directory + name, "job", rank, 2, soon_enough());
      EXPECT_EQ(store.code(), Code::invalid_argument);
      EXPECT_THAT(store,
                  fails_with("XYLEM_RENDEZVOUS=file://" + directory + name + ": there is no such"));
    }
  }
  EXPECT_EQ(files(), 1U);
}

TEST_F(FileStoreIn, WhatOthersPutThereIsNotWaitedFor) {
  const std::string base = fmt::format("{}/xylem-{:016x}", directory, hash_text("job"));
  ASSERT_TRUE(fs::create_directory(base));
  ASSERT_EQ(::mkfifo((base + "/hello.7").c_str(), 0600), 0);
  start(2, "hello");
  ASSERT_EQ(::mkfifo((base + "/session").c_str(), 0600), 0);
  EXPECT_EQ(open(1, 2, Deadline::after(milliseconds(50))).code(), Code::timed_out);
}

TEST_F(FileStoreIn, WhatOthersPutInPlaceOfADraftIsNeitherFollowedNorWaitedFor) {
  // The file name of rank 0's draft contains the number of the session.
  const std::string base = fmt::format("{}/xylem-{:016x}", directory, hash_text("job"));
  const std::string victim = directory + "/victim";
  std::ofstream(victim) << "precious";
  const auto store = value_of(open(0, 1));
  std::string session;
  for (const auto& entry : fs::directory_iterator(base)) {
    if (entry.is_directory()) session = entry.path().filename();
  }
  const std::string draft = base + "/draft." + session;
  fs::create_symlink(victim, draft);
  EXPECT_TRUE(store->set("a", {}));
  std::string text;
  std::ifstream(victim) >> text;
  EXPECT_EQ(text, "precious");
  ASSERT_EQ(::mkfifo(draft.c_str(), 0600), 0);
  EXPECT_TRUE(store->set("b", {}));
}

TEST_F(FileStoreIn, FilesThatMayNotBeWrittenAreAnError) {
  Status status;
  {
    const FileSizeLimit limit(0);
    status = open(1, 2).status();
  }
  EXPECT_THAT(status, fails_as(Code::exhausted, directory, "ulimit -f"));
  EXPECT_FALSE(has_file("hello.1"));
  EXPECT_EQ(files(), 1U) << "no draft is left in the job's folder";
}

TEST_F(FileStoreIn, KeysAreSetOnceAndMayHoldAnyPrintableCharacter) {
  std::barrier both_have(2);
  on_each_rank(2, [&](std::uint32_t rank) {
    const auto store = value_of(open(rank, 2));
    const std::string key = "../../{weird}*%.." + std::to_string(rank);
    ASSERT_TRUE(store->set(key, bytes_of("1")));
    EXPECT_EQ(store->set(key, bytes_of("2")).code(), Code::invalid_argument);
    const auto value =
        value_of(store->get("../../{weird}*%.." + std::to_string(1 - rank), soon_enough()));
    EXPECT_EQ(text_of(value), "1");
    both_have.arrive_and_wait();
  });
  EXPECT_EQ(files(), 0U);
}

TEST(LocalStore, HoldsWhatItsOnlyRankSets) {
  runtime::LocalStore store;
  EXPECT_TRUE(store.set("a", bytes_of("1")));
  EXPECT_EQ(text_of(store.get("a", Deadline::after(milliseconds(0))).value()), "1");
  EXPECT_EQ(store.set("a", bytes_of("2")).code(), Code::invalid_argument);
  EXPECT_EQ(store.get("b", soon_enough()).code(), Code::timed_out) << "get() does not wait";
}

}  // namespace
}  // namespace xylem::test
