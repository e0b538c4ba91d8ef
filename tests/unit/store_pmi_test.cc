// SPDX-License-Identifier: Apache-2.0
//
// The store over PMI-1. The test acts as the launcher.
#include "runtime/src/bootstrap/pmi_store.h"
#include "runtime/src/bootstrap/socket.h"
#include "support/control_ranks.h"
#include "support/outcome.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/socket.h>

#include <array>
#include <map>
#include <mutex>
#include <thread>

namespace xylem::test {
namespace {

using runtime::bytes_of;
using runtime::ByteVector;
using runtime::PmiStore;
using runtime::text_of;
using std::chrono::milliseconds;

/// A launcher of `size` processes that implements PMI 1.1. Values become visible after a barrier of
/// all ranks.
class Launcher {
 public:
  explicit Launcher(std::uint32_t size, std::string maxes = "keylen_max=64 vallen_max=256")
      : size_(size), maxes_(std::move(maxes)) {
    for (std::uint32_t rank = 0; rank < size; ++rank) {
      std::array<int, 2> ends{};
      EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
      processes_.emplace_back(ends[0]);
      ours_.emplace_back(ends[1]);
    }
    for (std::uint32_t rank = 0; rank < size; ++rank) {
      threads_.emplace_back([this, rank] { serve(rank); });
    }
  }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;
  ~Launcher() {
    processes_.clear();
    for (std::thread& thread : threads_) thread.join();
  }
  int fd(std::uint32_t rank) const { return processes_[rank].get(); }

 private:
  void serve(std::uint32_t rank) {
    std::string unread;
    std::array<char, 512> piece;
    for (;;) {
      const ssize_t got = ::recv(ours_[rank].get(), piece.data(), piece.size(), 0);
      if (got <= 0) return;
      unread.append(piece.data(), static_cast<std::size_t>(got));
      for (auto end = unread.find('\n'); end != std::string::npos; end = unread.find('\n')) {
        answer(rank, unread.substr(0, end));
        unread.erase(0, end + 1);
      }
    }
  }
  static std::string field(const std::string& line, const std::string& name) {
    const auto at = line.find(" " + name + "=");
    if (at == std::string::npos) return "";
    const auto begin = at + name.size() + 2;
    return line.substr(begin, line.find(' ', begin) - begin);
  }
  void answer(std::uint32_t rank, const std::string& line) {
    const std::lock_guard lock(mutex_);
    if (line.starts_with("cmd=init"))
      return say(rank, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0");
    if (line.starts_with("cmd=get_maxes")) return say(rank, "cmd=maxes kvsname_max=64 " + maxes_);
    if (line.starts_with("cmd=get_my_kvsname")) return say(rank, "cmd=my_kvsname kvsname=kvs_0");
    if (line.starts_with("cmd=put")) {
      EXPECT_EQ(field(line, "kvsname"), "kvs_0");
      EXPECT_LT(field(line, "key").size(), 64U);
      EXPECT_LT(field(line, "value").size(), 256U);
      put_[field(line, "key")] = field(line, "value");
      return say(rank, "cmd=put_result rc=0 msg=success");
    }
    if (line.starts_with("cmd=get ")) {
      const auto found = seen_.find(field(line, "key"));
      if (found == seen_.end())
        return say(rank, "cmd=get_result rc=-1 msg=key_not_found value=unknown");
      return say(rank, "cmd=get_result rc=0 msg=success value=" + found->second);
    }
    if (line == "cmd=barrier_in") {
      if (++waiting_ < size_) return;
      waiting_ = 0;
      seen_ = put_;
      for (std::uint32_t other = 0; other < size_; ++other) say(other, "cmd=barrier_out");
      return;
    }
    ADD_FAILURE() << "rank " << rank << " says " << line;
  }
  void say(std::uint32_t rank, const std::string& line) {
    EXPECT_TRUE(runtime::send_all(ours_[rank].get(), bytes_of(line + "\n"), soon_enough()));
  }

  std::uint32_t size_;
  std::string maxes_;
  std::vector<UniqueFd> processes_, ours_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::map<std::string, std::string> put_, seen_;
  std::uint32_t waiting_ = 0;
};

TEST(PmiStore, GivesValuesOfAnySizeAfterABarrierOfAll) {
  constexpr std::uint32_t kSize = 3;
  const Launcher launcher(kSize);
  on_each_rank(kSize, [&](std::uint32_t rank) {
    const auto store = value_of(PmiStore::open(launcher.fd(rank), rank, soon_enough()));
    for (const std::size_t size : {0, 1, 184, 185, 5000}) {
      ByteVector value(size);
      for (std::size_t i = 0; i < size; ++i) value[i] = static_cast<std::byte>(i * 7 + rank);
      const std::string name = std::to_string(size) + ".";
      ASSERT_TRUE(store->set(name + std::to_string(rank), value));
      for (std::uint32_t other = 0; other < kSize; ++other) {
        const auto got = value_of(store->get(name + std::to_string(other), soon_enough()));
        for (std::size_t i = 0; i < size; ++i) value[i] = static_cast<std::byte>(i * 7 + other);
        EXPECT_TRUE(got == value) << size;
      }
    }
  });
}

TEST(PmiStore, EachStartOfAProcessHasKeysOfItsOwn) {
  const Launcher launcher(2);
  for (const char* const word : {"first", "second", "third"}) {
    on_each_rank(2, [&](std::uint32_t rank) {
      const auto store = value_of(PmiStore::open(launcher.fd(rank), rank, soon_enough()));
      ASSERT_TRUE(store->set("word." + std::to_string(rank), bytes_of(word)));
      EXPECT_EQ(text_of(store->get("word." + std::to_string(1 - rank), soon_enough()).value()),
                word);
    });
  }
}

TEST(PmiStore, ARankThatNeverComesTimesOut) {
  const Launcher launcher(2);
  const auto store = value_of(PmiStore::open(launcher.fd(0), 0, soon_enough()));
  ASSERT_TRUE(store->set("a.0", {}));
  EXPECT_THAT(store->get("a.1", Deadline::after(milliseconds(50))),
              fails_as(Code::timed_out, "barrier"));
  EXPECT_EQ(store->get("a.0", soon_enough()).code(), Code::timed_out)
      << "after a time-out, answers cannot be matched to requests";
}

TEST(PmiStore, AKeyThatNobodySetIsAnErrorAtOnce) {
  const Launcher launcher(1);
  const auto store = value_of(PmiStore::open(launcher.fd(0), 0, soon_enough()));
  EXPECT_EQ(store->get("nothing", soon_enough()).code(), Code::timed_out);
  EXPECT_TRUE(store->set("key", {}));
  EXPECT_EQ(store->set("key", {}).code(), Code::invalid_argument);
  EXPECT_EQ(store->set(std::string(60, 'k'), {}).code(), Code::invalid_argument)
      << "longer than the launcher allows";
}

TEST(PmiStore, ALauncherThatIsNoneIsNamed) {
  const Launcher tight(1, "keylen_max=8 vallen_max=8");
  EXPECT_EQ(PmiStore::open(tight.fd(0), 0, soon_enough()).code(), Code::unsupported);

  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const UniqueFd process(ends[0]);
  UniqueFd other(ends[1]);
  ASSERT_TRUE(runtime::send_all(other.get(), bytes_of("220 smtp ready\n"), soon_enough()));
  EXPECT_THAT(PmiStore::open(process.get(), 0, soon_enough()),
              fails_as(Code::unsupported, "220 smtp ready"));
  other.reset();
  EXPECT_EQ(PmiStore::open(process.get(), 0, soon_enough()).code(), Code::link_lost);
}

}  // namespace
}  // namespace xylem::test
