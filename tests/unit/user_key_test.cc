// SPDX-License-Identifier: Apache-2.0
//
// The key with which the ranks of a host recognize that they belong to one user.
#include "runtime/src/bootstrap/user_key.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>
#include <vector>

namespace xylem::test {
namespace {

namespace fs = std::filesystem;
using runtime::secret_of_user;
using testing::AllOf;
using testing::HasSubstr;

class UserKey : public testing::Test {
 protected:
  UserKey() {
    std::string pattern = testing::TempDir() + "xylem-key-XXXXXX";
    base = ::mkdtemp(pattern.data());
    folder = base / "xylem";
  }
  UserKey(const UserKey&) = delete;
  UserKey& operator=(const UserKey&) = delete;
  ~UserKey() override { fs::remove_all(base); }

  void expect_refused(const fs::path& named) {
    const auto secret = secret_of_user(folder, "job");
    EXPECT_EQ(secret.code(), Code::invalid_argument);
    EXPECT_THAT(std::string(secret.status().message()),
                AllOf(HasSubstr(named.string()), HasSubstr("XYLEM_SECRET")));
  }

  fs::path base, folder;
};

TEST_F(UserKey, IsMadeOnceAndIsItsUsersAlone) {
  std::vector<std::thread> processes;
  std::vector<std::string> secrets(8);
  for (std::string& secret : secrets) {
    processes.emplace_back([&] { secret = secret_of_user(folder, "job").value(); });
  }
  for (std::thread& process : processes) process.join();
  EXPECT_EQ(std::set(secrets.begin(), secrets.end()).size(), 1U);
  EXPECT_GE(secrets.front().size(), 32U);
  EXPECT_NE(secret_of_user(folder, "another job").value(), secrets.front());

  struct stat facts {};
  ASSERT_EQ(::stat((folder / "key").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600U);
  ASSERT_EQ(::stat(folder.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0700U);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 1) << "no draft is left";
}

TEST_F(UserKey, ThatOthersReadIsRefused) {
  ASSERT_TRUE(secret_of_user(folder, "job"));
  ::chmod((folder / "key").c_str(), 0640);
  expect_refused(folder / "key");
}

TEST_F(UserKey, ThatIsALinkOrCutIsRefused) {
  ASSERT_TRUE(secret_of_user(folder, "job"));
  fs::rename(folder / "key", base / "elsewhere");
  fs::create_symlink(base / "elsewhere", folder / "key");
  expect_refused(folder / "key");
  fs::remove(folder / "key");
  std::ofstream(folder / "key") << "short";
  ::chmod((folder / "key").c_str(), 0600);
  expect_refused(folder / "key");
}

TEST_F(UserKey, OfAnotherUsersFolderIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "giving a folder to another user needs root";
  constexpr uid_t kNobody = 65534;
  ASSERT_TRUE(fs::create_directory(folder));
  ASSERT_EQ(::chown(folder.c_str(), kNobody, kNobody), 0);
  expect_refused(folder);
  ASSERT_EQ(::chown(folder.c_str(), 0, 0), 0);
  ASSERT_TRUE(secret_of_user(folder, "job"));
  ASSERT_EQ(::chown((folder / "key").c_str(), kNobody, kNobody), 0);
  expect_refused(folder / "key");
}

}  // namespace
}  // namespace xylem::test
