// SPDX-License-Identifier: Apache-2.0
//
// Communicators that their members form without the other ranks of the job (xylem/runtime/seat.h),
// and the errors at the other members when a member leaves.
#include "conformance/over_transports.h"
#include "support/outcome.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <map>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace xylem::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint32_t kSeats = 1023;

/// Exchanges seats between the members of a group, which are threads of one process.
class MeetingPlace {
 public:
  /// Publishes this member's seat, waits for the seats of the others, and returns all seats in the
  /// order of `ranks`.
  std::vector<Formation::Member> meet(std::uint64_t group,
                                      const std::vector<std::uint32_t>& ranks,
                                      Formation::Member mine) {
    std::unique_lock lock(mutex_);
    auto& seats = groups_[group];
    seats[mine.rank] = mine.seat;
    changed_.notify_all();
    const auto have_all_come = [&] { return seats.size() == ranks.size(); };
    EXPECT_TRUE(changed_.wait_for(lock, seconds(60), have_all_come));
    std::vector<Formation::Member> members;
    for (const std::uint32_t rank : ranks) members.push_back({rank, seats[rank]});
    return members;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint64_t, std::map<std::uint32_t, std::uint32_t>> groups_;
};

Communicator form(const Runtime& runtime,
                  MeetingPlace& place,
                  std::uint64_t uid,
                  const std::vector<std::uint32_t>& ranks) {
  auto seat = runtime.take_seat();
  EXPECT_TRUE(seat.is_ok()) << seat.status().to_string();
  Formation formation;
  formation.uid = uid;
  formation.members = place.meet(uid, ranks, {runtime.rank(), seat->number()});
  auto group = runtime.form(*std::move(seat), formation);
  EXPECT_TRUE(group.is_ok()) << group.status().to_string();
  return *group;
}

/// Makes collectives and sends messages of several sizes. Xylem carries out each size in another
/// way.
void use(const Communicator& group) {
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{700},
                                  std::size_t{5000}, std::size_t{300'000}}) {
    std::vector<std::int64_t> values(count, group.rank() + 1), sums(count), got(count);
    ASSERT_TRUE(group
                    .all_reduce({values.data(), count, DataType::int64},
                                {sums.data(), count, DataType::int64})
                    .wait()
                    .is_ok());
    const std::int64_t sum = std::int64_t{group.size()} * (group.size() + 1) / 2;
    ASSERT_EQ(std::ranges::count(sums, sum), static_cast<std::ptrdiff_t>(count));
    const std::uint32_t next = (group.rank() + 1) % group.size();
    const std::uint32_t before = (group.rank() + group.size() - 1) % group.size();
    const Work send = group.send({values.data(), count, DataType::int64}, next, 5);
    const Work receive = group.recv({got.data(), count, DataType::int64}, before, 5);
    ASSERT_TRUE(receive.wait().is_ok());
    ASSERT_TRUE(send.wait().is_ok());
    ASSERT_EQ(std::ranges::count(got, before + 1), static_cast<std::ptrdiff_t>(count));
  }
}

class Seats : public OverTransports {
 protected:
  static RankOptions options() { return OverTransports::options(7); }
};
INSTANTIATE_TEST_SUITE_P(Transports, Seats, OverTransports::all(), OverTransports::name);

// Each rank uses a seat with another number. The members are in reverse order of their world ranks.
TEST_P(Seats, NeedNotBeEqual) {
  MeetingPlace place;
  run_ranks(options(), [&](Runtime& runtime, MemoryHub&) {
    std::vector<Seat> taken;
    for (std::uint32_t i = 0; i < runtime.rank(); ++i) taken.push_back(*runtime.take_seat());
    std::vector<std::uint32_t> ranks(runtime.size());
    std::iota(ranks.rbegin(), ranks.rend(), 0);
    const Communicator group = form(runtime, place, 77, ranks);
    EXPECT_EQ(group.world_rank(0), runtime.size() - 1);
    EXPECT_EQ(group.id(), runtime.size()) << "the number of the seat of the first member";
    use(group);
    const Communicator parts = *group.split(static_cast<std::int32_t>(group.rank() % 2), 0);
    use(parts);
    use(runtime.world());
  });
}

// The other ranks of the job make no call.
TEST_P(Seats, NeedOnlyTheMembers) {
  MeetingPlace place;
  run_ranks(options(), [&](Runtime& runtime, MemoryHub&) {
    for (std::uint32_t first = 0; first + 1 < runtime.size(); ++first) {
      if (runtime.rank() != first && runtime.rank() != first + 1) continue;
      use(form(runtime, place, 1000 + first, {first, first + 1}));
    }
  });
}

// Four threads of each rank form and use groups of random members. Each thread has another order of
// groups.
TEST_P(Seats, BelongToOverlappingGroupsOfManyThreads) {
  constexpr std::uint64_t kThreads = 4, kGroups = 10;
  MeetingPlace place;
  run_ranks(options(), [&](Runtime& runtime, MemoryHub&) {
    std::vector<std::thread> threads;
    for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        std::mt19937_64 random(thread);  // The same groups at all ranks.
        std::vector<Communicator> groups;
        for (std::uint64_t number = 0; number < kGroups; ++number) {
          std::vector<std::uint32_t> ranks;
          for (std::uint32_t rank = 0; rank < runtime.size(); ++rank) {
            if (random() % 3 != 0) ranks.push_back(rank);
          }
          std::shuffle(ranks.begin(), ranks.end(), random);
          if (std::ranges::find(ranks, runtime.rank()) == ranks.end()) continue;
          groups.push_back(form(runtime, place, 100 * thread + number + 1, ranks));
          const std::int64_t value = 1;
          std::int64_t sum = 0;
          ASSERT_TRUE(groups.back().all_reduce(one(value), into(sum)).wait());
          ASSERT_EQ(sum, groups.back().size());
        }
        for (Communicator& group : groups) use(group);
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

TEST(SeatsOfARank, AreLimitedAndCanBeTakenAgain) {
  run_ranks({.size = 1}, [](Runtime& runtime, MemoryHub&) {
    std::vector<Communicator> groups;
    for (std::uint32_t i = 0; i < kSeats; ++i) {
      auto seat = runtime.take_seat();
      ASSERT_TRUE(seat.is_ok()) << i << ": " << seat.status().to_string();
      const std::uint32_t number = seat->number();
      EXPECT_EQ(number, i + 1);
      groups.push_back(*runtime.form(*std::move(seat), {i + 1, {{0, number}}, {}}));
    }
    const auto none = runtime.take_seat();
    EXPECT_THAT(none,
                testing::AllOf(fails_as(Code::exhausted, "rank 0 has 1024 communicators already"),
                               blames(0U)));
    EXPECT_EQ(groups[500].duplicate().status().code(), Code::exhausted);
    ASSERT_TRUE(groups[500].destroy().is_ok());
    EXPECT_EQ(runtime.take_seat()->number(), 501U);
  });
}

// The world uses seat 0. It is never used for another communicator, since 0 means that there is no
// seat.
TEST(SeatsOfARank, OutliveTheWorld) {
  MeetingPlace place;
  run_ranks({}, [&](Runtime& runtime, MemoryHub&) {
    Communicator world = runtime.world();
    ASSERT_TRUE(world.destroy().is_ok());
    EXPECT_EQ(world.barrier().wait().code(), Code::invalid_argument);
    const Communicator group = form(runtime, place, 3, {1, 0});
    EXPECT_EQ(group.id(), 1U);
    use(group);
  });
}

// The rank may have announced the number of a seat that it then drops. Other ranks may send to this
// number, so it is not reused at once.
TEST(SeatsOfARank, AreNotTakenAgainAtOnceIfTheyWereNotUsed) {
  run_ranks({}, [](Runtime& runtime, MemoryHub&) {
    { const Seat unused = *runtime.take_seat(); }
    const Seat next = *runtime.take_seat();
    EXPECT_EQ(next.number(), 2U);
  });
}

TEST(SeatsOfARank, AreCheckedWhenACommunicatorIsFormed) {
  run_ranks({}, [](Runtime& runtime, MemoryHub&) {
    if (runtime.rank() != 0) return;
    const auto why_not = [&](const Formation& formation) {
      const auto group = runtime.form(*runtime.take_seat(), formation);
      EXPECT_EQ(group.status().code(), Code::invalid_argument);
      return std::string(group.status().message());
    };
    EXPECT_EQ(why_not({1, {{1, 4}}, {}}), "form: this rank, 0, is no member");
    EXPECT_EQ(why_not({1, {{0, 900}}, {}}),
              "form: this rank, 0, is given with seat 900, and holds seat 2");
    EXPECT_EQ(why_not({1, {{0, 3}, {2, 1}}, {}}), "form: rank 2 of a job of 2 ranks");
    EXPECT_EQ(why_not({1, {{0, 4}, {1, 1}, {1, 2}}, {}}), "form: rank 1 is a member twice");
    EXPECT_EQ(why_not({1, {{0, 5}, {1, 0}}, {}}), "form: rank 1 has seat 0; seats are 1 to 1023");
    EXPECT_EQ(why_not({1, {{0, 6}, {1, 1024}}, {}}),
              "form: rank 1 has seat 1024; seats are 1 to 1023");
    EXPECT_EQ(runtime.form(Seat(), {1, {{0, 0}}, {}}).status().message(),
              "form: the seat is empty; pass one of take_seat()");
    Seat seat = *runtime.take_seat();
    const std::uint32_t number = seat.number();
    const auto first = value_of(runtime.form(std::move(seat), {9, {{0, number}}, {}}));
    EXPECT_EQ(why_not({9, {{0, number + 1}}, {}}),
              "form: a communicator with uid 0x9 exists; draw another number for each");
  });
  EXPECT_EQ(Runtime().take_seat().status().code(), Code::invalid_argument);
  EXPECT_EQ(Runtime().form(Seat(), {}).status().code(), Code::invalid_argument);
}

TEST(SeatsOfARank, HaveTheTimeOutOfTheirCommunicator) {
  MeetingPlace place;
  std::latch has_failed(2);
  run_ranks({}, [&](Runtime& runtime, MemoryHub&) {
    Seat seat = *runtime.take_seat();
    Formation formation;
    formation.uid = 5;
    formation.members = place.meet(5, {0, 1}, {runtime.rank(), seat.number()});
    formation.timeout = milliseconds(300);
    const Communicator group = *runtime.form(std::move(seat), formation);
    if (runtime.rank() == 0) {
      EXPECT_EQ(group.barrier().wait().code(), Code::timed_out);
    }
    has_failed.arrive_and_wait();
  });
}

// ---- members that leave ----

TEST(LettingGo, EndsCallsThatWaitForTheRank) {
  MeetingPlace place;
  std::latch is_over(3);
  run_ranks({.size = 3}, [&](Runtime& runtime, MemoryHub&) {
    Communicator group = form(runtime, place, 8, {0, 1, 2});
    if (runtime.rank() == 2) {
      ASSERT_TRUE(group.destroy().is_ok());
    } else {
      const Status outcome = group.barrier().wait();
      EXPECT_THAT(outcome,
                  testing::AllOf(fails_as(Code::peer_lost,
                                          "rank 2 left the communicator before it took its part"),
                                 blames(2U)));
    }
    is_over.arrive_and_wait();
    use(runtime.world());
  });
}

TEST(LettingGo, EndsReceivesFromTheRank) {
  MeetingPlace place;
  std::latch is_over(2);
  run_ranks({}, [&](Runtime& runtime, MemoryHub&) {
    Communicator group = form(runtime, place, 8, {0, 1});
    std::int64_t got = 0;
    if (runtime.rank() == 1) {
      const std::int64_t value = 3;
      ASSERT_TRUE(group.send(one(value), 0, 1).wait().is_ok());
      group = Communicator();  // Drops the last handle without destroy().
    } else {
      EXPECT_TRUE(group.recv(into(got), 1, 1).wait().is_ok()) << "sent before";
      EXPECT_EQ(got, 3);
      const Status outcome = group.recv(into(got), 1, 2).wait();
      EXPECT_THAT(outcome, testing::AllOf(fails_as(Code::peer_lost,
                                                   "rank 1 left the communicator before it sent"),
                                          blames(1U)));
    }
    is_over.arrive_and_wait();
    use(runtime.world());
  });
}

// A rank keeps a limited number of goodbyes to communicators that it has not formed yet. So it asks
// about the first of many.
TEST(LettingGo, OfManyIsKnownToARankThatFormsThemLater) {
  constexpr std::uint64_t kGroups = 70;
  MeetingPlace place;
  std::latch have_met(2), has_left(1);
  const auto begin = Clock::now();
  RankOptions options;
  options.environment = {{"XYLEM_TIMEOUT", "60s"}, {"XYLEM_STALL_REPORT", "60s"}};
  run_ranks(options, [&](Runtime& runtime, MemoryHub& hub) {
    std::vector<Seat> seats;
    std::vector<Formation> formations(kGroups);
    for (std::uint64_t i = 0; i < kGroups; ++i) {
      seats.push_back(*runtime.take_seat());
      formations[i].uid = 100 + i;
      formations[i].members =
          place.meet(formations[i].uid, {0, 1}, {runtime.rank(), seats.back().number()});
    }
    have_met.arrive_and_wait();
    if (runtime.rank() == 1) {
      for (std::uint64_t i = 0; i < kGroups; ++i)
        ASSERT_TRUE(runtime.form(std::move(seats[i]), formations[i])->destroy().is_ok());
      EXPECT_TRUE(hub.wait_until_served(0));
      has_left.count_down();
    } else {
      has_left.wait();
      Communicator group = *runtime.form(std::move(seats[0]), formations[0]);
      EXPECT_THAT(group.barrier().wait(),
                  testing::AllOf(fails_as(Code::peer_lost,
                                          "rank 1 left the communicator before it took its part"),
                                 blames(1U)));
    }
    use(runtime.world());
  });
  EXPECT_LT(Clock::now() - begin, seconds(20)) << "before any roll call";
}

TEST(LettingGo, OfTheJobIsKnownToTheOthers) {
  run_ranks({.size = 3}, [](Runtime& runtime, MemoryHub&) {
    EXPECT_FALSE(runtime.is_without(runtime.rank()));
    EXPECT_FALSE(runtime.is_without(3)) << "no rank of the job";
    ASSERT_TRUE(runtime.world().barrier().wait().is_ok());
    if (runtime.rank() == 1) return;
    const Deadline deadline = Deadline::after(seconds(30));
    while (!runtime.is_without(1) && !deadline.passed()) std::this_thread::yield();
    EXPECT_TRUE(runtime.is_without(1));
  });
  EXPECT_FALSE(Runtime().is_without(0));
}

// Rank 0 forms the communicator after rank 1 has formed and left it.
TEST(LettingGo, IsToldToARankThatComesLater) {
  MeetingPlace place;
  std::latch has_left(2), is_over(2);
  run_ranks({}, [&](Runtime& runtime, MemoryHub&) {
    Seat seat = *runtime.take_seat();
    const auto members = place.meet(8, {0, 1}, {runtime.rank(), seat.number()});
    const auto finish = [&] { return *runtime.form(std::move(seat), {8, members, {}}); };
    if (runtime.rank() == 1) {
      ASSERT_TRUE(finish().destroy().is_ok());
      has_left.arrive_and_wait();
    } else {
      has_left.arrive_and_wait();
      // A receive sends nothing to the other rank, so rank 0 must learn of the departure without
      // asking.
      std::int64_t got = 0;
      const Status outcome = finish().recv(into(got), 1, 1).wait();
      EXPECT_THAT(outcome, testing::AllOf(fails_as(Code::peer_lost), blames(1U)));
    }
    is_over.arrive_and_wait();
  });
}

}  // namespace
}  // namespace xylem::test
