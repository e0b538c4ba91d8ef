// SPDX-License-Identifier: Apache-2.0
//
// The key by which the ranks of a host recognize that they belong to the same user.
#include "runtime/src/bootstrap/user_key.h"

#include "support/outcome.h"
#include "support/temporary_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

namespace xylem::test {
namespace {

namespace fs = std::filesystem;
using runtime::KeyPlaces;
using runtime::secret_of_user;
using runtime::user_key_folder;
using testing::HasSubstr;
using testing::Not;

class UserKey : public testing::Test {
 protected:
  void expect_refused(const fs::path& named) {
    EXPECT_THAT(secret_of_user(folder, "job"),
                fails_as(Code::invalid_argument, named.string(), "XYLEM_SECRET"));
  }

  const TemporaryDirectory directory;
  fs::path base = directory.path(), folder = base / "xylem";
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

class UserKeyFolder : public UserKey {
 protected:
  UserKeyFolder() {
    for (const auto& place : {*places.home, places.runtime, places.temporary}) {
      fs::create_directory(place);
      fs::permissions(place, fs::perms::owner_all);
    }
  }
  /// Makes the home directory unwritable, even for root.
  void lose_home() {
    fs::remove_all(*places.home);
    std::ofstream(*places.home) << "no directory";
  }

  KeyPlaces places{base / "home", base / "run", base / "tmp"};
  const fs::path last = places.temporary / ("xylem-" + std::to_string(::geteuid()));
};

TEST_F(UserKeyFolder, IsInTheHomeIfThatCanBeWritten) {
  folder = user_key_folder(places);
  EXPECT_EQ(folder, *places.home / ".local/state/xylem");
  EXPECT_EQ(fs::status(folder).permissions(), fs::perms::owner_all);
  places.home.reset();
  EXPECT_EQ(user_key_folder(places), places.runtime / "xylem");
}

TEST_F(UserKeyFolder, IsElsewhereOnlyInADirectoryThatOthersCannotWrite) {
  lose_home();
  EXPECT_EQ(user_key_folder(places), places.runtime / "xylem");
  EXPECT_TRUE(secret_of_user(user_key_folder(places), "job"));
  ::chmod(places.runtime.c_str(), 0770);
  EXPECT_EQ(user_key_folder(places), last);
  fs::rename(places.runtime, base / "elsewhere");
  EXPECT_EQ(user_key_folder(places), last);
  ::chmod((base / "elsewhere").c_str(), 0700);
  fs::create_symlink(base / "elsewhere", places.runtime);
  EXPECT_EQ(user_key_folder(places), last);
}

TEST_F(UserKeyFolder, IsChosenByNoVariable) {
  const KeyPlaces before = KeyPlaces::of_this_user();
  EXPECT_EQ(before.runtime, "/run/user/" + std::to_string(::geteuid()));
  std::map<std::string, std::string> variables;
  for (const char* const name : {"HOME", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"}) {
    if (const char* const value = std::getenv(name)) variables[name] = value;
    ::setenv(name, base.c_str(), 1);
  }
  const KeyPlaces after = KeyPlaces::of_this_user();
  for (const char* const name : {"HOME", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"}) {
    ::unsetenv(name);
  }
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  EXPECT_EQ(std::tie(after.home, after.runtime, after.temporary),
            std::tie(before.home, before.runtime, before.temporary));
}

TEST_F(UserKeyFolder, OfAnotherUserIsNotUsedWhereThereIsAnother) {
  if (::geteuid() != 0) GTEST_SKIP() << "giving a folder to another user needs root";
  constexpr uid_t kNobody = 65534;
  const auto give = [](const fs::path& path) {
    fs::create_directories(path);
    EXPECT_EQ(::chown(path.c_str(), kNobody, kNobody), 0);
  };
  give(last);
  give(*places.home / ".local/state/xylem");
  EXPECT_EQ(user_key_folder(places), places.runtime / "xylem");
  EXPECT_TRUE(secret_of_user(user_key_folder(places), "job"));
  give(places.runtime);
  EXPECT_EQ(user_key_folder(places), last);
  folder = last;
  expect_refused(last);
}

TEST_F(UserKey, OfAnotherUsersFolderIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "giving a folder to another user needs root";
  constexpr uid_t kNobody = 65534;
  ASSERT_TRUE(fs::create_directory(folder));
  ASSERT_EQ(::chown(folder.c_str(), kNobody, kNobody), 0);
  expect_refused(folder);
  EXPECT_THAT(std::string(secret_of_user(folder, "job").status().message()),
              Not(HasSubstr("remove")))
      << "its owner alone could";
  ASSERT_EQ(::chown(folder.c_str(), 0, 0), 0);
  ASSERT_TRUE(secret_of_user(folder, "job"));
  ASSERT_EQ(::chown((folder / "key").c_str(), kNobody, kNobody), 0);
  expect_refused(folder / "key");
}

}  // namespace
}  // namespace xylem::test
