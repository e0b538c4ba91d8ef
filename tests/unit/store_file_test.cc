// SPDX-License-Identifier: Apache-2.0
//
// The store in a shared directory.
#include "runtime/src/bootstrap/file_store.h"
#include "runtime/src/bootstrap/local_store.h"
#include "runtime/src/bootstrap/store_rules.h"
#include "support/control_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace xylem::test {
namespace {

namespace fs = std::filesystem;
using runtime::bytes_of;
using runtime::FileStore;
using runtime::text_of;
using std::chrono::milliseconds;
using testing::HasSubstr;

class FileStoreIn : public testing::Test {
 protected:
  FileStoreIn() {
    std::string pattern = testing::TempDir() + "xylem-store-XXXXXX";
    directory = ::mkdtemp(pattern.data());
  }
  FileStoreIn(const FileStoreIn&) = delete;
  FileStoreIn& operator=(const FileStoreIn&) = delete;
  ~FileStoreIn() override { fs::remove_all(directory); }

  Result<std::shared_ptr<Store>> open(std::uint32_t rank,
                                      std::uint32_t size,
                                      Deadline deadline = soon_enough(),
                                      const std::string& job = "job") {
    return FileStore::open(directory, job, rank, size, deadline);
  }
  /// A whole start: everyone sets, everyone gets from everyone.
  void start(std::uint32_t size, const std::string& word, const std::string& job = "job") {
    std::barrier all_have(static_cast<std::ptrdiff_t>(size));
    on_each_rank(size, [&](std::uint32_t rank) {
      const auto store = open(rank, size, soon_enough(), job);
      ASSERT_TRUE(store) << store.status().to_string();
      const std::string mine = word + std::to_string(rank);
      ASSERT_TRUE((*store)->set("word/" + std::to_string(rank), bytes_of(mine)));
      for (std::uint32_t other = 0; other < size; ++other) {
        const auto value = (*store)->get("word/" + std::to_string(other), soon_enough());
        ASSERT_TRUE(value) << value.status().to_string();
        EXPECT_EQ(text_of(*value), word + std::to_string(other));
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

  std::string directory;
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
  // A start that is cut off leaves its files: they are copied away and put back.
  const std::string saved = directory + "-saved";
  std::barrier copied(2);
  on_each_rank(2, [&](std::uint32_t rank) {
    const auto store = open(rank, 2);
    ASSERT_TRUE(store);
    ASSERT_TRUE((*store)->set("word/" + std::to_string(rank), bytes_of("stale")));
    ASSERT_TRUE((*store)->get("word/" + std::to_string(1 - rank), soon_enough()));
    if (rank == 0) fs::copy(directory, saved, fs::copy_options::recursive);
    copied.arrive_and_wait();
  });
  fs::remove_all(directory);
  fs::rename(saved, directory);
  EXPECT_GT(files(), 4U);
  start(2, "fresh");
  EXPECT_EQ(files(), 0U) << "the earlier start's files are gone, too";
}

TEST_F(FileStoreIn, RankZeroNamesWhoIsMissing) {
  on_each_rank(2, [&](std::uint32_t rank) {
    const auto store = open(rank, 3, Deadline::after(milliseconds(400)));
    if (rank == 0) {
      EXPECT_EQ(store.code(), Code::timed_out);
      EXPECT_EQ(store.status().peer(), 2U);
      EXPECT_THAT(std::string(store.status().message()),
                  testing::MatchesRegex("rank 2 did not come within .*; 0, 1 are here"));
    } else if (store) {
      const auto value = (*store)->get("never", Deadline::after(milliseconds(10)));
      EXPECT_EQ(value.status().peer(), 2U) << value.status().to_string();
    }
  });
}

TEST_F(FileStoreIn, AMissingRankZeroIsNamed) {
  const auto store = open(1, 2, Deadline::after(milliseconds(50)));
  EXPECT_EQ(store.code(), Code::timed_out);
  EXPECT_EQ(store.status().peer(), 0U);
  EXPECT_THAT(std::string(store.status().message()), HasSubstr(directory));
}

TEST_F(FileStoreIn, ADirectoryThatCannotBeMadeIsNamed) {
  std::ofstream(directory + "/file") << "x";
  const auto store = FileStore::open(directory + "/file", "job", 0, 2, soon_enough());
  EXPECT_EQ(store.code(), Code::invalid_argument);
  EXPECT_THAT(std::string(store.status().message()), HasSubstr(directory + "/file"));
}

TEST_F(FileStoreIn, KeysAreSetOnceAndMayHoldAnyPrintableCharacter) {
  std::barrier both_have(2);
  on_each_rank(2, [&](std::uint32_t rank) {
    const auto store = open(rank, 2);
    ASSERT_TRUE(store);
    const std::string key = "../../{weird}*%.." + std::to_string(rank);
    ASSERT_TRUE((*store)->set(key, bytes_of("1")));
    EXPECT_EQ((*store)->set(key, bytes_of("2")).code(), Code::invalid_argument);
    const auto value = (*store)->get("../../{weird}*%.." + std::to_string(1 - rank), soon_enough());
    ASSERT_TRUE(value) << value.status().to_string();
    EXPECT_EQ(text_of(*value), "1");
    both_have.arrive_and_wait();
  });
  EXPECT_EQ(files(), 0U);
}

TEST(LocalStore, HoldsWhatItsOnlyRankSets) {
  runtime::LocalStore store;
  EXPECT_TRUE(store.set("a", bytes_of("1")));
  EXPECT_EQ(text_of(store.get("a", Deadline::after(milliseconds(0))).value()), "1");
  EXPECT_EQ(store.set("a", bytes_of("2")).code(), Code::invalid_argument);
  EXPECT_EQ(store.get("b", soon_enough()).code(), Code::timed_out) << "and does not wait";
}

}  // namespace
}  // namespace xylem::test
