// SPDX-License-Identifier: Apache-2.0
//
// The control plane with ranks as threads: joining, gathering, flooding, leaving, and refused
// connections.
#include "runtime/src/bootstrap/control_plane.h"

#include "runtime/src/bootstrap/neighbours.h"
#include "runtime/src/bootstrap/socket.h"
#include "support/control_ranks.h"
#include "support/outcome.h"
#include "support/sanitizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <latch>
#include <map>
#include <mutex>
#include <random>
#include <thread>

namespace xylem::test {
namespace {

using runtime::bytes_of;
using runtime::ByteVector;
using runtime::Card;
using runtime::ControlJoin;
using runtime::ControlPlane;
using runtime::text_of;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;

/// The open file descriptors of this process. The values are their targets, such as "socket:[123]".
std::map<int, std::string> open_descriptors() {
  std::map<int, std::string> all;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(entry.path(), gone);
    if (!gone) all[std::stoi(entry.path().filename())] = target;
  }
  return all;
}

/// Counts this rank, and serves its plane until `all` ranks have been counted.
void serve_until_counted(ControlPlane& plane,
                         Recorder& recorder,
                         std::atomic<std::uint32_t>& count,
                         std::uint32_t all) {
  ++count;
  const auto are_all = [&] { return count == all; };
  while (!serve_until(plane, recorder, are_all, Deadline::after(milliseconds(1)))) {
  }
}

class ControlPlaneOf : public testing::TestWithParam<std::uint32_t> {
 protected:
  void SetUp() override {
    planes = join_all(size(), std::make_shared<MemoryStore>(), soon_enough());
    for (const auto& plane : planes) ASSERT_TRUE(plane) << plane.status().to_string();
  }
  static std::uint32_t size() { return GetParam(); }
  ControlPlane& plane(std::uint32_t rank) { return **planes[rank]; }

  Planes planes;
};

TEST_P(ControlPlaneOf, GathersEveryRanksBytes) {
  on_each_rank(size(), [&](std::uint32_t rank) {
    EXPECT_EQ(plane(rank).rank(), rank);
    EXPECT_EQ(plane(rank).size(), size());
    for (int round = 0; round < 5; ++round) {
      const std::string mine = std::string(rank, 'r') + std::to_string(round);
      const auto values = value_of(plane(rank).all_gather(bytes_of(mine), soon_enough()));
      ASSERT_EQ(values.size(), size());
      for (std::uint32_t other = 0; other < size(); ++other) {
        EXPECT_EQ(text_of(values[other]), std::string(other, 'r') + std::to_string(round));
      }
    }
  });
}

TEST_P(ControlPlaneOf, GathersLargeValues) {
  const std::size_t bytes = std::size_t{4} << 20;
  on_each_rank(size(), [&](std::uint32_t rank) {
    // Only some values are large, as with topologies of different machines.
    const ByteVector mine(rank % 3 == 0 ? bytes / size() : rank, static_cast<std::byte>(rank));
    const auto values = value_of(plane(rank).all_gather(mine, soon_enough()));
    for (std::uint32_t other = 0; other < size(); ++other) {
      const ByteVector expected(other % 3 == 0 ? bytes / size() : other,
                                static_cast<std::byte>(other));
      EXPECT_TRUE(values[other] == expected) << other;
    }
  });
}

TEST_P(ControlPlaneOf, EveryMessageArrivesOnceAndInOrderOfItsOrigin) {
  constexpr int kEach = 20;
  const std::string large(ControlPlane::kMaxMessage, 'm');
  on_each_rank(size(), [&](std::uint32_t rank) {
    for (int i = 0; i < kEach; ++i) plane(rank).flood(bytes_of(std::to_string(i)));
    plane(rank).flood(bytes_of(large));
    Recorder recorder;
    const auto all_here = [&] {
      return recorder.messages.size() == size() - 1 &&
             std::ranges::all_of(recorder.messages, [kEach](const auto& entry) {
               return entry.second.size() == kEach + 1;
             });
    };
    EXPECT_TRUE(serve_until(plane(rank), recorder, all_here, soon_enough()));
    EXPECT_EQ(recorder.messages.count(rank), 0U);
    for (const auto& [origin, messages] : recorder.messages) {
      for (int i = 0; i < kEach; ++i)
        EXPECT_EQ(messages[static_cast<std::size_t>(i)], std::to_string(i));
      EXPECT_EQ(messages.back(), large);
    }
    EXPECT_TRUE(recorder.lost.empty());
  });
}

TEST_P(ControlPlaneOf, ALetterReachesItsRankAlone) {
  std::atomic<std::uint32_t> have_heard = 0;
  on_each_rank(size(), [&](std::uint32_t rank) {
    for (std::uint32_t to = 0; to < size(); ++to) {
      if (to != rank) plane(rank).send(to, bytes_of(std::to_string(to)));
    }
    Recorder recorder;
    const auto all_here = [&] { return recorder.messages.size() == size() - 1; };
    EXPECT_TRUE(serve_until(plane(rank), recorder, all_here, soon_enough()));
    for (const auto& [origin, messages] : recorder.messages)
      EXPECT_THAT(messages, testing::ElementsAre(std::to_string(rank))) << origin;
    // Letters of other ranks may still be on their way over this one.
    serve_until_counted(plane(rank), recorder, have_heard, size());
  });
}

// No rank but the leavers is between the two ranks on the way that letters take.
TEST(ControlPlane, ALetterReachesItsRankThoughOthersHaveLeft) {
  constexpr std::uint32_t kSize = 8;
  const auto planes = join_all(kSize, std::make_shared<MemoryStore>(), soon_enough());
  for (const auto& plane : planes) ASSERT_TRUE(plane) << plane.status().to_string();
  std::atomic<std::uint32_t> have_heard = 0;
  on_each_rank(kSize, [&](std::uint32_t rank) {
    ControlPlane& plane = **planes[rank];
    if (rank == 1 || rank == 2) return plane.leave(soon_enough());
    Recorder recorder;
    EXPECT_TRUE(serve_until(
        plane, recorder, [&] { return recorder.left.size() == 2; }, soon_enough()));
    if (rank == 0) plane.send(3, bytes_of("letter"));
    const auto has_heard = [&] { return rank != 3 || !recorder.messages.empty(); };
    EXPECT_TRUE(serve_until(plane, recorder, has_heard, soon_enough()));
    serve_until_counted(plane, recorder, have_heard, kSize - 2);
    EXPECT_EQ(recorder.messages.size(), rank == 3 ? 1U : 0U);
  });
}

TEST_P(ControlPlaneOf, AGoodbyeIsHeardOnceByAllAndIsNoDeath) {
  const std::uint32_t leaver = size() / 2;
  on_each_rank(size(), [&](std::uint32_t rank) {
    if (rank == leaver) return planes[rank].value()->leave(soon_enough());
    Recorder recorder;
    EXPECT_TRUE(serve_until(
        plane(rank), recorder, [&] { return recorder.left.count(leaver) == 1; }, soon_enough()));
  });
  // Then all ranks leave. Each rank gets at most one report about each other rank.
  on_each_rank(size(), [&](std::uint32_t rank) {
    if (rank == leaver) return;
    Recorder recorder;
    static_cast<void>(serve_until(
        plane(rank), recorder, [] { return true; }, soon_enough()));
    plane(rank).leave(soon_enough());
    EXPECT_TRUE(recorder.lost.empty());
    EXPECT_EQ(recorder.left.count(leaver), 0U) << "heard twice";
  });
}

class ControlPlaneOfSeveral : public ControlPlaneOf {};

TEST_P(ControlPlaneOfSeveral, ADeathIsHeardOnceByAll) {
  const std::uint32_t victim = size() - 1;
  on_each_rank(size(), [&](std::uint32_t rank) {
    if (rank == victim) {
      planes[rank].value().reset();
      return;
    }
    Recorder recorder;
    EXPECT_TRUE(serve_until(
        plane(rank), recorder, [&] { return recorder.lost.count(victim) == 1; }, soon_enough()));
    static_cast<void>(serve_until(
        plane(rank), recorder, [] { return true; }, soon_enough()));
    EXPECT_EQ(recorder.lost.size(), 1U);
    EXPECT_EQ(recorder.lost[victim].size(), 1U);
    EXPECT_TRUE(recorder.left.empty());
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, ControlPlaneOf, testing::Values(1, 2, 3, 5, 8, 32));
INSTANTIATE_TEST_SUITE_P(Ranks, ControlPlaneOfSeveral, testing::Values(2, 3, 5, 8, 32));

TEST(ControlPlane, AJobOfOneOpensNoSocket) {
  const auto count_sockets = [] {
    const auto all = open_descriptors();
    return std::ranges::count_if(
        all, [](const auto& each) { return each.second.starts_with("socket:"); });
  };
  const auto before = count_sockets();
  const auto planes = join_all(1, std::make_shared<MemoryStore>(), soon_enough());
  ASSERT_TRUE(planes[0]);
  EXPECT_EQ(count_sockets(), before);
  planes[0].value()->flood(bytes_of("nobody hears this"));
  Recorder recorder;
  static_cast<void>(serve_until(
      *planes[0].value(), recorder, [] { return true; }, soon_enough()));
  EXPECT_TRUE(recorder.messages.empty());
}

TEST(ControlPlane, SaysWhichInterfaceItUses) {
  const auto planes = join_all(2, std::make_shared<MemoryStore>(), soon_enough());
  ASSERT_TRUE(planes[0]) << planes[0].status().to_string();
  EXPECT_EQ(planes[0].value()->interfaces().front().name, "lo");
}

TEST(ControlPlane, TwoJobsMeetInOneStoreWithoutMixing) {
  const auto store = std::make_shared<MemoryStore>();
  Planes first;
  Planes second;
  std::thread other([&] { second = join_all(3, store, soon_enough(), "second"); });
  first = join_all(2, store, soon_enough(), "first");
  other.join();
  for (const auto& plane : first) EXPECT_TRUE(plane) << plane.status().to_string();
  for (const auto& plane : second) EXPECT_TRUE(plane) << plane.status().to_string();
}

TEST(ControlPlane, RanksThatDoNotComeAreNamedByAll) {
  const auto store = std::make_shared<MemoryStore>();
  on_each_rank(3, [&](std::uint32_t rank) {
    const auto placement = placement_of(rank, 4);
    const auto plane =
        ControlPlane::join(placement, *store, {}, {}, Deadline::after(milliseconds(600)));
    EXPECT_THAT(plane, AllOf(fails_as(Code::timed_out), blames(3U)));
    EXPECT_THAT(std::string(plane.status().message()),
                testing::MatchesRegex("rank 3 did not come within .*; 0, 1, 2 are here"));
  });
}

TEST(ControlPlane, AnotherSecretIsRefusedNamingTheVariable) {
  const auto store = std::make_shared<MemoryStore>();
  on_each_rank(2, [&](std::uint32_t rank) {
    auto placement = placement_of(rank, 2);
    placement.secret = rank == 0 ? "one" : "another";
    const auto plane = ControlPlane::join(placement, *store, {}, {}, Deadline::after(seconds(2)));
    ASSERT_FALSE(plane);
    if (rank == 0) {
      EXPECT_THAT(plane, fails_as(Code::mismatch, "rank 1", "XYLEM_SECRET"));
    } else {
      EXPECT_THAT(plane, fails_with("secret"));
    }
  });
}

TEST(ControlPlane, AnotherVersionNamesBoth) {
  const auto store = std::make_shared<MemoryStore>();
  on_each_rank(3, [&](std::uint32_t rank) {
    const auto placement = placement_of(rank, 3);
    const runtime::Dialect dialect{1, rank == 1 ? "9.9.9" : XYLEM_VERSION};
    const Logger quiet;
    const auto plane =
        ControlJoin(placement, *store, quiet, Deadline::after(seconds(5)), dialect).run(loopback());
    EXPECT_THAT(plane, fails_as(Code::mismatch, "9.9.9", XYLEM_VERSION));
  });
}

TEST(ControlPlane, ARankThatDiesDuringTheStartIsNamed) {
  const auto store = std::make_shared<MemoryStore>();
  std::atomic<int> named = 0;
  on_each_rank(4, [&](std::uint32_t rank) {
    const auto placement = placement_of(rank, 4);
    auto plane = ControlPlane::join(placement, *store, {}, {}, soon_enough());
    // This rank ends before it gathers. Other ranks may still be joining at this time.
    if (rank == 2) return;
    const Status status = plane ? (*plane)->all_gather({}, soon_enough()).status() : plane.status();
    EXPECT_EQ(status.code(), Code::peer_lost) << status.to_string();
    named += status.peer() == 2U ? 1 : 0;
  });
  EXPECT_EQ(named, 3);
}

TEST(ControlPlane, ADeadAddressInTheStoreIsADeathAndNotATimeOut) {
  const auto store = std::make_shared<MemoryStore>();
  // The state that rank 1 leaves if it ends after it has published its card.
  auto listener = runtime::listen_on(loopback().chosen.address);
  const Card card{{},
                  runtime::HostIdentity::of_this_process(),
                  runtime::SocketAddress::of_socket(listener->get()).value()};
  listener->reset();
  const auto placement = placement_of(0, 2);
  std::string prefix;
  {
    // A store that copies the key under which rank 0 publishes, and changes the rank in this key.
    class Spy final : public Store {
     public:
      explicit Spy(std::string& key) : key_(key) {}
      Status set(std::string_view key, std::span<const std::byte>) override {
        if (key.find("card") != std::string_view::npos) key_ = key.substr(0, key.rfind('.') + 1);
        return {};
      }
      Result<std::vector<std::byte>> get(std::string_view, Deadline) override {
        return failure(Code::timed_out, "spy");
      }

     private:
      std::string& key_;
    } spy(prefix);
    EXPECT_FALSE(ControlPlane::join(placement, spy, {}, {}, Deadline::after(milliseconds(1))));
  }
  ASSERT_TRUE(store->set(prefix + "1", card.write()));
  const auto plane = ControlPlane::join(placement, *store, {}, {}, soon_enough());
  EXPECT_THAT(plane, AllOf(fails_as(Code::peer_lost), blames(1U)));
}

/// A store that reports the cards that ranks publish.
class CardReader final : public Store {
 public:
  explicit CardReader(std::shared_ptr<Store> store, std::function<void(const Card&)> seen)
      : store_(std::move(store)), seen_(std::move(seen)) {}
  Status set(std::string_view key, std::span<const std::byte> value) override {
    if (key.find("card") != std::string_view::npos) seen_(Card::read(value).value());
    return store_->set(key, value);
  }
  Result<std::vector<std::byte>> get(std::string_view key, Deadline deadline) override {
    return store_->get(key, deadline);
  }

 private:
  std::shared_ptr<Store> store_;
  std::function<void(const Card&)> seen_;
};

TEST(ControlPlane, StrangersAtTheListeningPortDoNoHarm) {
  const auto memory = std::make_shared<MemoryStore>();
  std::mt19937 random(7);
  std::vector<UniqueFd> strangers;
  std::mutex mutex;
  const auto annoy = [&](const Card& card) {
    const std::lock_guard lock(mutex);
    for (int i = 0; i < 100; ++i) {
      auto fd = runtime::connect_to(card.address, soon_enough());
      ASSERT_TRUE(fd) << fd.status().to_string();
      ByteVector garbage(random() % 300);
      for (std::byte& byte : garbage) byte = static_cast<std::byte>(random());
      // Some of the garbage begins with the right magic number, and some is empty.
      if (i % 3 == 0 && garbage.size() > 8)
        std::ranges::copy(bytes_of("\x8cXYLEM\r\n"), garbage.begin());
      static_cast<void>(runtime::send_all(fd->get(), garbage, soon_enough()).is_ok());
      if (i % 2 == 0) strangers.push_back(*std::move(fd));
    }
  };
  Planes planes;
  for (int i = 0; i < 3; ++i) planes.emplace_back(failure(Code::internal, "not joined"));
  on_each_rank(3, [&](std::uint32_t rank) {
    CardReader store(memory, annoy);
    const auto placement = placement_of(rank, 3);
    planes[rank] = ControlPlane::join(placement, store, {}, {}, soon_enough());
    ASSERT_TRUE(planes[rank]) << planes[rank].status().to_string();
    EXPECT_TRUE(planes[rank].value()->all_gather(bytes_of("still here"), soon_enough()));
  });
}

TEST(ControlPlane, FloodsFromManyThreadsAllArrive) {
  const auto planes = join_all(2, std::make_shared<MemoryStore>(), soon_enough());
  ASSERT_TRUE(planes[0] && planes[1]);
  constexpr std::uint32_t kThreads = 4;
  constexpr std::size_t kEach = 100;
  std::thread speaker([&] {
    on_each_rank(kThreads, [&](std::uint32_t thread) {
      for (std::size_t i = 0; i < kEach; ++i)
        planes[0].value()->flood(bytes_of(std::to_string(thread)));
    });
  });
  std::atomic<bool> heard = false;
  std::thread sender([&] {
    Recorder recorder;
    while (!heard)
      static_cast<void>(serve_until(
          *planes[0].value(), recorder, [] { return true; }, soon_enough()));
  });
  Recorder recorder;
  EXPECT_TRUE(serve_until(
      *planes[1].value(), recorder, [&] { return recorder.messages[0].size() == kThreads * kEach; },
      soon_enough()));
  heard = true;
  speaker.join();
  sender.join();
}

// All ranks of a large job have the same to say at the same time. Each hears it, and at most
// once from each neighbour.
TEST(ControlPlane, MessagesOfOneTopicCostAsMuchAsOne) {
  constexpr std::uint32_t kRanks = kHasSanitizer ? 64 : 256;
  const auto planes = join_all(kRanks, std::make_shared<MemoryStore>(), soon_enough());
  for (const auto& plane : planes) ASSERT_TRUE(plane) << plane.status().to_string();
  std::atomic<std::uint32_t> have_heard = 0;
  std::latch have_begun(kRanks);
  Clock::time_point begin;
  std::once_flag is_begun;
  on_each_rank(kRanks, [&](std::uint32_t rank) {
    ControlPlane& plane = **planes[rank];
    have_begun.arrive_and_wait();
    std::call_once(is_begun, [&] { begin = Clock::now(); });
    constexpr std::uint64_t kTopic = 7;
    const bool speaks = rank != 100;
    if (speaks) plane.flood(bytes_of("late"), kTopic);
    Recorder recorder;
    const auto has_heard = [&] { return !recorder.messages.empty(); };
    EXPECT_TRUE(serve_until(plane, recorder, has_heard, soon_enough()));
    serve_until_counted(plane, recorder, have_heard, kRanks);
    std::size_t heard = 0;
    for (const auto& [origin, messages] : recorder.messages) heard += messages.size();
    // On a slow machine, some begin only after the others' messages are no longer counted as one.
    const auto times = 1 + (Clock::now() - begin) / ControlPlane::kSameTopic;
    EXPECT_LE(heard, times * runtime::neighbours(rank, kRanks).size());
  });
}

TEST(ControlPlane, ManyDeathsAtOnceAreAllHeard) {
  constexpr std::uint32_t kSize = 16;
  auto planes = join_all(kSize, std::make_shared<MemoryStore>(), soon_enough());
  for (const auto& plane : planes) ASSERT_TRUE(plane) << plane.status().to_string();
  // A rank has at least one more neighbour on each side, so the other ranks stay connected.
  const std::vector<std::uint32_t> victims = {3, 7, 8};
  on_each_rank(kSize, [&](std::uint32_t rank) {
    if (std::ranges::count(victims, rank) > 0) {
      planes[rank].value().reset();
      return;
    }
    Recorder recorder;
    EXPECT_TRUE(serve_until(
        *planes[rank].value(), recorder, [&] { return recorder.lost.size() == victims.size(); },
        soon_enough()))
        << rank;
    for (const auto& [victim, times] : recorder.lost) EXPECT_EQ(times.size(), 1U);
  });
}

TEST(ControlPlane, AGoodbyeIsHeardThoughItsRankTakesNothingMore) {
  const Planes planes = join_all(2, std::make_shared<MemoryStore>(), soon_enough());
  for (const auto& plane : planes) ASSERT_TRUE(plane) << plane.status().to_string();
  planes[1].value()->leave(soon_enough());
  // Several calls of send() are necessary. The peer answers the first with a reset, so a later call
  // fails.
  const std::string large(ControlPlane::kMaxMessage, 'm');
  for (int i = 0; i < 100; ++i) planes[0].value()->flood(bytes_of(large));
  Recorder recorder;
  planes[0].value()->serve(recorder);
  EXPECT_EQ(recorder.left.count(1), 1U);
  EXPECT_TRUE(recorder.lost.empty()) << recorder.lost[1].front();
}

TEST(ControlPlane, EveryDescriptorIsClosedOnExec) {
  const auto planes = join_all(2, std::make_shared<MemoryStore>(), soon_enough());
  ASSERT_TRUE(planes[0]);
  std::size_t checked = 0;
  for (const auto& [fd, what] : open_descriptors()) {
    if (!what.starts_with("socket:") && !what.starts_with("anon_inode:")) continue;
    EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0) << what;
    ++checked;
  }
  EXPECT_GE(checked, 4U);
}

}  // namespace
}  // namespace xylem::test
