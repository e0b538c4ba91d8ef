// SPDX-License-Identifier: Apache-2.0
//
// Ranks disagree on a call, or a rank does not call. All ranks must get a mismatch or a time-out
// that names both sides, and no output may mix data of disagreeing calls. Other tests check abort,
// busy, and invalid arguments.
#include "support/outcome.h"
#include "support/ranks.h"
#include "support/temporary_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <latch>
#include <string>
#include <string_view>

namespace xylem::test {
namespace {

using Call = std::function<Work(const Communicator&, std::vector<float>&, std::vector<float>&)>;

struct Disagreement {
  const char* name;
  Call right;
  Call wrong;        ///< The call of the last rank. All others make `right`.
  const char* said;  ///< The message must contain `said` and `instead`.
  const char* instead;
};

ConstBuffer in(const std::vector<float>& v, std::size_t count) {
  return {v.data(), count, DataType::float32};
}
Buffer out(std::vector<float>& v, std::size_t count) {
  return {v.data(), count, DataType::float32};
}

std::vector<Disagreement> disagreements() {
  using V = std::vector<float>;
  const auto n = [](const Communicator& c) { return static_cast<std::size_t>(c.size()); };
  const Call all_reduce = [](const auto& c, V& a, V& b) {
    return c.all_reduce(in(a, 8), out(b, 8));
  };
  const Call broadcast = [](const auto& c, V& a, V& b) {
    return c.broadcast(in(a, 8), out(b, 8), 0);
  };
  const Call reduce = [](const auto& c, V& a, V& b) {
    return c.reduce(in(a, 8), out(b, 8), RedOp::sum, 0);
  };
  const Call all_gather = [n](const auto& c, V& a, V& b) {
    return c.all_gather(in(a, 4), out(b, 4 * n(c)));
  };
  const Call scatter = [n](const auto& c, V& a, V& b) {
    return c.scatter(in(a, 4 * n(c)), out(b, 4), 0);
  };
  const Call gather = [n](const auto& c, V& a, V& b) {
    return c.gather(in(a, 4), out(b, 4 * n(c)), 0);
  };
  const Call reduce_scatter = [n](const auto& c, V& a, V& b) {
    return c.reduce_scatter(in(a, 4 * n(c)), out(b, 4));
  };
  const Call all_to_all = [n](const auto& c, V& a, V& b) {
    return c.all_to_all(in(a, 4 * n(c)), out(b, 4 * n(c)));
  };
  const Call barrier = [](const auto& c, V&, V&) { return c.barrier(); };
  const auto v = [](const Communicator& c, std::uint64_t count) {
    return std::vector<std::uint64_t>(c.size(), count);
  };
  return {
      {"operation", all_reduce, all_gather, "all_reduce", "all_gather"},
      {"type", all_reduce,
       [](const auto& c, V& a, V& b) {
         return c.all_reduce(ConstBuffer(a.data(), 8, DataType::int32),
                             Buffer(b.data(), 8, DataType::int32));
       },
       "float32", "int32"},
      {"count_all_reduce", all_reduce,
       [](const auto& c, V& a, V& b) { return c.all_reduce(in(a, 16), out(b, 16)); }, "of 8",
       "of 16"},
      {"redop", all_reduce,
       [](const auto& c, V& a, V& b) { return c.all_reduce(in(a, 8), out(b, 8), RedOp::max); },
       "sum", "max"},
      {"root_broadcast", broadcast,
       [](const auto& c, V& a, V& b) { return c.broadcast(in(a, 8), out(b, 8), c.size() - 1); },
       "root 0", "root"},
      {"count_broadcast", broadcast,
       [](const auto& c, V& a, V& b) { return c.broadcast(in(a, 9), out(b, 9), 0); }, "of 8",
       "of 9"},
      {"root_reduce", reduce,
       [](const auto& c, V& a, V& b) {
         return c.reduce(in(a, 8), out(b, 8), RedOp::sum, c.size() - 1);
       },
       "root 0", "root"},
      {"redop_reduce", reduce,
       [](const auto& c, V& a, V& b) { return c.reduce(in(a, 8), out(b, 8), RedOp::min, 0); },
       "sum", "min"},
      {"count_all_gather", all_gather,
       [n](const auto& c, V& a, V& b) { return c.all_gather(in(a, 5), out(b, 5 * n(c))); }, "of 4",
       "of 5"},
      {"root_scatter", scatter,
       [n](const auto& c, V& a, V& b) {
         return c.scatter(in(a, 4 * n(c)), out(b, 4), c.size() - 1);
       },
       "root 0", "root"},
      {"root_gather", gather,
       [n](const auto& c, V& a, V& b) {
         return c.gather(in(a, 4), out(b, 4 * n(c)), c.size() - 1);
       },
       "root 0", "root"},
      {"count_gather", gather,
       [n](const auto& c, V& a, V& b) { return c.gather(in(a, 3), out(b, 3 * n(c)), 0); }, "of 4",
       "of 3"},
      {"count_reduce_scatter", reduce_scatter,
       [n](const auto& c, V& a, V& b) { return c.reduce_scatter(in(a, 5 * n(c)), out(b, 5)); },
       "of 4", "of 5"},
      {"count_all_to_all", all_to_all,
       [n](const auto& c, V& a, V& b) { return c.all_to_all(in(a, 2 * n(c)), out(b, 2 * n(c))); },
       "of 4", "of 2"},
      {"barrier_for_all_reduce", barrier, all_reduce, "barrier", "all_reduce"},
      {"counts_all_gather_v",
       [v, n](const auto& c, V& a, V& b) {
         return c.all_gather_v(in(a, 4), out(b, 4 * n(c)), v(c, 4));
       },
       [v, n](const auto& c, V& a, V& b) {
         return c.all_gather_v(in(a, 3), out(b, 3 * n(c)), v(c, 3));
       },
       "all_gather_v", "all_gather_v"},
      {"counts_reduce_scatter_v",
       [v, n](const auto& c, V& a, V& b) {
         return c.reduce_scatter_v(in(a, 4 * n(c)), out(b, 4), v(c, 4));
       },
       [v, n](const auto& c, V& a, V& b) {
         return c.reduce_scatter_v(in(a, 3 * n(c)), out(b, 3), v(c, 3));
       },
       "reduce_scatter_v", "reduce_scatter_v"},
      {"pair_all_to_all_v",
       [v, n](const auto& c, V& a, V& b) {
         return c.all_to_all_v(in(a, 4 * n(c)), v(c, 4), out(b, 4 * n(c)), v(c, 4));
       },
       [v, n](const auto& c, V& a, V& b) {
         return c.all_to_all_v(in(a, 3 * n(c)), v(c, 3), out(b, 3 * n(c)), v(c, 3));
       },
       "all_to_all_v", "bytes"},
  };
}

class DisagreementTest
    : public testing::TestWithParam<std::tuple<Disagreement, std::uint32_t, const char*>> {};

TEST_P(DisagreementTest, EveryRankGetsMismatchNamingBothSides) {
  const Disagreement& what = std::get<0>(GetParam());
  RankOptions options{.size = std::get<1>(GetParam()), .transport = std::get<2>(GetParam())};
  options.environment["XYLEM_TIMEOUT"] = "20s";
  run_ranks(options, [&what](const Communicator& world) {
    const bool odd = world.rank() + 1 == world.size();
    std::vector<float> input(64, static_cast<float>(world.rank() + 1)), output(64, -1.0F);
    // Calls are compared by number. After this barrier, the number of the disagreeing call is not
    // 0.
    ASSERT_TRUE(world.barrier().wait().is_ok());
    Status status = (odd ? what.wrong : what.right)(world, input, output).wait();
    // A call that only sends may succeed. Then the rank's next call reports the mismatch.
    const bool ended_well = status.is_ok();
    if (ended_well) status = world.barrier().wait();
    EXPECT_THAT(status, fails_as(Code::mismatch, what.said, what.instead));
    // With two ranks, an output is unchanged or contains the rank's own data.
    if (world.size() == 2 && !ended_well) {
      const float own = static_cast<float>(world.rank() + 1);
      EXPECT_TRUE(std::all_of(output.begin(), output.end(),
                              [own](float x) { return x == -1.0F || x == own; }));
    }
    EXPECT_EQ(world.barrier().wait().code(), Code::mismatch)
        << "a poisoned communicator stays poisoned";
  });
}

std::string disagreement_name(const testing::TestParamInfo<DisagreementTest::ParamType>& test) {
  const auto& [what, ranks, transport] = test.param;
  return std::string(what.name) + "_" + std::to_string(ranks) + "_" + transport;
}

INSTANTIATE_TEST_SUITE_P(Calls,
                         DisagreementTest,
                         testing::Combine(testing::ValuesIn(disagreements()),
                                          testing::Values(2U, 3U, 5U),
                                          testing::Values("loopback", "shm")),
                         disagreement_name);

// Rank 3 expects elements that rank 2 does not send, and none of rank 4, which is late. Other ranks
// wait for rank 4, and ask on behalf of all. So rank 3 never asks, but answers.
TEST(Disagreement, OfOnePairIsFoundWhoeverAsks) {
  std::latch have_called(3), have_waited(4);
  RankOptions options{.size = 5};
  options.environment = {{"XYLEM_TIMEOUT", "60s"}, {"XYLEM_STALL_REPORT", "60s"}};
  const auto begin = Clock::now();
  run_ranks(options, [&](const Communicator& world) {
    const std::uint32_t rank = world.rank();
    std::vector<std::uint64_t> sent(5, 1), received(5, 1);
    if (rank == 2 || rank == 4) sent[3] = 0;
    if (rank == 3) received[4] = 0;
    std::vector<float> input(sent[3] == 0 ? 4 : 5, 1.0F), output(rank == 3 ? 4 : 5);
    if (rank == 3) have_called.wait();
    if (rank == 4) have_waited.wait();
    const Work work =
        world.all_to_all_v(in(input, input.size()), sent, out(output, output.size()), received);
    if (rank < 3) have_called.count_down();
    if (rank < 4) {
      EXPECT_FALSE(work.wait_for(std::chrono::milliseconds(500)).is_ok());
      have_waited.count_down();
    }
    Status status = work.wait();
    if (status) status = world.barrier().wait();
    EXPECT_THAT(status, fails_as(Code::mismatch, "rank 2 sends 0 bytes to rank 3"));
  });
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(30)) << "before any roll call";
}

// The late rank receives what rank 1 expects of it before it makes its call.
TEST(Disagreement, OfALateSenderIsFoundWhenItCalls) {
  std::latch have_waited(2);
  RankOptions options{.size = 3};
  options.environment = {{"XYLEM_TIMEOUT", "60s"}, {"XYLEM_STALL_REPORT", "60s"}};
  const auto begin = Clock::now();
  run_ranks(options, [&](const Communicator& world) {
    const bool is_late = world.rank() == 2;
    std::vector<std::uint64_t> sent(3, 1), received(3, 1);
    if (is_late) sent[1] = 0;
    std::vector<float> input(is_late ? 2 : 3, 1.0F), output(3);
    if (is_late) have_waited.wait();
    const Work work =
        world.all_to_all_v(in(input, input.size()), sent, out(output, output.size()), received);
    if (!is_late) {
      EXPECT_FALSE(work.wait_for(std::chrono::milliseconds(500)).is_ok());
      have_waited.count_down();
    }
    Status status = work.wait();
    if (status) status = world.barrier().wait();
    EXPECT_THAT(status, fails_as(Code::mismatch, "rank 2 sends 0 bytes to rank 1"));
  });
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(30)) << "before any roll call";
}

RankOptions three_ranks(const char* timeout) {
  return {.size = 3, .environment = {{"XYLEM_TIMEOUT", timeout}}};
}

TEST(Disagreement, ManyCallsAgoIsNamed) {
  run_ranks(three_ranks("20s"), [](const Communicator& world) {
    constexpr std::size_t kCalls = 50;
    std::vector<float> input(64, 1.0F), output(64 * kCalls);
    std::vector<Work> calls;
    for (std::size_t i = 0; i < kCalls; ++i) {
      const std::size_t count = i == 3 && world.rank() == 1 ? 9 : 8;
      const Buffer part(&output[64 * i], count, DataType::float32);
      calls.push_back(world.all_reduce(in(input, count), part));
    }
    const Status outcome = calls.back().wait();
    EXPECT_THAT(outcome, fails_as(Code::mismatch, "call 4 of"));
  });
}

// The root of a broadcast does not wait for the other ranks. So it may make many calls after the
// disagreeing call before it learns of the disagreement.
TEST(Disagreement, OfARankThatIsFarAheadIsMismatch) {
  for (const std::size_t ahead : {100, 3000, 8000}) {
    run_ranks(three_ranks("20s"), [ahead](const Communicator& world) {
      std::vector<float> data(9, 1.0F);
      Status status;
      if (world.rank() == 0) {
        for (std::size_t i = 0; i < ahead && status; ++i) {
          status = world.broadcast(out(data, 8), 0).wait();
        }
      } else {
        status = world.broadcast(out(data, 9), 0).wait();
      }
      if (status) status = world.barrier().wait();
      EXPECT_THAT(status, fails_as(Code::mismatch, "call 1 of"));
    });
  }
}

// The root makes so many calls after the disagreeing call that its history does not contain the
// disagreeing call. The other ranks call only after the root has made all its calls.
TEST(Disagreement, OfARankThatIsTooFarAheadIsATimeOut) {
  std::latch is_ahead(1);
  run_ranks(three_ranks("3s"), [&is_ahead](const Communicator& world) {
    std::vector<float> data(9, 1.0F);
    Status status;
    if (world.rank() == 0) {
      for (std::size_t i = 0; i < 9000 && status; ++i) {
        status = world.broadcast(out(data, 8), 0).wait();
      }
      is_ahead.count_down();
    } else {
      is_ahead.wait();
      status = world.broadcast(out(data, 9), 0).wait();
    }
    if (status) status = world.barrier().wait();
    EXPECT_EQ(status.code(), Code::timed_out) << status.to_string();
  });
}

TEST(PointToPointDisagreement, TypeThatDiffersIsMismatchAtBothEnds) {
  for (const char* const transport : {"loopback", "shm"}) {
    for (const auto& counts : {std::pair{10, 10}, {10, 11}, {5000, 5000}, {5000, 4000}}) {
      RankOptions options = three_ranks("20s");
      options.size = 2;
      options.transport = transport;
      run_ranks(options, [count = counts.first, room = counts.second](const Communicator& world) {
        std::vector<float> data(std::max(count, room), 1.0F);
        const Buffer as_int(data.data(), room, DataType::int32);
        Status status = world.rank() == 0 ? world.send(in(data, count), 1, 7).wait()
                                          : world.recv(as_int, 0, 7).wait();
        EXPECT_FALSE(status && world.rank() == 1)
            << "rank 1 gets another type, so its receive must fail";
        if (status) status = world.barrier().wait();  // The send of a small message may succeed.
        EXPECT_THAT(status, fails_as(Code::mismatch, "sends " + std::to_string(count) +
                                                         " float32 to rank 1 with tag 7, which "
                                                         "receives " +
                                                         std::to_string(room) + " int32"));
      });
    }
  }
}

TEST(Timeout, NamesTheRankThatDidNotCall) {
  RankOptions options = three_ranks("1500ms");
  options.adjust = [](std::uint32_t rank, runtime::Environment& environment) {
    if (rank == 2) environment["XYLEM_TIMEOUT"] = "60s";
  };
  run_ranks(options, [](const Communicator& world) {
    std::vector<float> a(8, 1.0F), b(8);
    ASSERT_TRUE(world.all_reduce(in(a, 8), out(b, 8)).wait().is_ok());
    if (world.rank() == 2) {
      // Rank 2 makes another call, and this call fails because the other ranks have timed out.
      const Status status = world.recv(out(b, 8), 0, 99).wait();
      EXPECT_EQ(status.code(), Code::timed_out) << status.to_string();
      return;
    }
    const Status status = world.all_reduce(in(a, 8), out(b, 8)).wait();
    EXPECT_THAT(status, fails_as(Code::timed_out, "rank 2 did not call it", " waits too"));
    EXPECT_THAT(status, fails_with("last call was call 1, all_reduce of 8 float32, sum"));
  });
}

TEST(Timeout, OfOneCallIsItsOwn) {
  run_ranks(three_ranks("60s"), [](const Communicator& world) {
    std::vector<float> a(8, 1.0F), b(8), c(8);
    const Work message = world.recv(out(c, 8), (world.rank() + 1) % 3, 99);
    const Work call = world.rank() == 2 ? Work() : world.all_reduce(in(a, 8), out(b, 8));
    EXPECT_FALSE(message.ended());
    if (world.rank() == 1) call.set_timeout(std::chrono::milliseconds(300));
    const Status status = message.wait();
    EXPECT_TRUE(message.ended());
    EXPECT_THAT(status, fails_as(Code::timed_out, "rank 2 did not call it"));
    if (world.rank() != 2) {
      EXPECT_EQ(call.wait().code(), Code::timed_out) << call.wait().to_string();
    }
  });
}

// Rank 2 does not call. When the other ranks time out, all ranks answer the roll call, and rank 2
// is blamed.
TEST(Timeout, BlamesTheRankThatDidNotCall) {
  std::latch ended(2);
  run_ranks(three_ranks("700ms"), [&ended](const Communicator& world) {
    if (world.rank() == 2) return ended.wait();
    std::vector<float> data(8, 1.0F), sum(8);
    const auto begin = Clock::now();
    const Status status = world.all_reduce(in(data, 8), out(sum, 8)).wait();
    // If a rank did not answer, the call would end at 1.85 s.
    EXPECT_LT(Clock::now() - begin, std::chrono::milliseconds(1500))
        << "all ranks answer, so there is no longer wait";
    ended.count_down();
    EXPECT_THAT(status, testing::AllOf(fails_as(Code::timed_out), blames(2U)));
  });
}

TEST(Abort, EndsPendingWorkOnAllRanksWithinASecond) {
  run_ranks(three_ranks("20s"), [](Communicator world) {
    std::vector<float> a(8, 1.0F), b(8);
    if (world.rank() == 2) {
      const auto begin = Clock::now();
      EXPECT_TRUE(world.abort("the test says so").is_ok());
      EXPECT_LT(Clock::now() - begin, std::chrono::seconds(1));
    }
    const Status status = world.all_reduce(in(a, 8), out(b, 8)).wait();
    EXPECT_THAT(status, testing::AllOf(fails_as(Code::cancelled,
                                                "rank 2 aborted communicator 0: the test says so"),
                                       blames(2U)))
        << "rank " << world.rank();
  });
}

TEST(Destroy, IsBusyWhileWorkIsPending) {
  RankOptions options = three_ranks("20s");
  options.size = 2;
  run_ranks(options, [](Runtime& runtime, MemoryHub&) {
    auto extra = value_of(runtime.world().duplicate());
    std::vector<float> b(8);
    float one = 1.0F;
    const auto peer = 1 - runtime.rank();
    const Work receive = extra.recv(out(b, 1), peer, 3);
    EXPECT_EQ(extra.destroy().code(), Code::busy);
    EXPECT_EQ(runtime.shutdown().code(), Code::busy);
    ASSERT_TRUE(runtime.world().barrier().wait().is_ok());
    ASSERT_TRUE(extra.send(ConstBuffer(&one, 1, DataType::float32), peer, 3).wait().is_ok());
    ASSERT_TRUE(receive.wait().is_ok());
    EXPECT_TRUE(extra.destroy().is_ok());
    EXPECT_TRUE(runtime.shutdown().is_ok());
    EXPECT_EQ(runtime.shutdown().code(), Code::ok) << "a second shutdown is no error";
  });
}

TEST(Shutdown, AbortsPendingWorkWhenTheRuntimeIsDropped) {
  run_ranks(three_ranks("20s"), [](Runtime& runtime, MemoryHub&) {
    Work work;
    std::vector<float> b(8);
    {
      Runtime mine = std::move(runtime);
      work = mine.world().recv(out(b, 8), std::nullopt, 1);
    }
    EXPECT_EQ(work.wait().code(), Code::cancelled);
  });
}

TEST(Arguments, BadOnesComeBackAtOnceAndNameTheRule) {
  run_ranks(three_ranks("20s"), [](const Communicator& world) {
    std::vector<float> a(9, 1.0F), b(9);
    const auto says = [](const Work& work, Code code, const char* text) {
      EXPECT_THAT(work.status(), fails_as(code, text));
    };
    says(world.all_reduce(in(a, 8), out(b, 7)), Code::invalid_argument,
         "the output has 7 elements, the call needs 8");
    says(world.all_reduce(ConstBuffer(nullptr, 8, DataType::float32), out(b, 8)),
         Code::invalid_argument, "null address");
    says(world.all_reduce(in(a, 8), Buffer(b.data(), 8, DataType::int32)), Code::invalid_argument,
         "must be alike");
    says(world.all_reduce(in(a, 8), Buffer(a.data() + 1, 8, DataType::float32)),
         Code::invalid_argument, "overlap");
    says(world.all_reduce(in(a, 8), out(b, 8), RedOp::bit_and), Code::invalid_argument, "and");
    says(world.broadcast(in(a, 8), out(b, 8), 3), Code::invalid_argument,
         "root 3: the communicator has ranks 0 to 2");
    says(world.all_to_all(in(a, 8), out(b, 8)), Code::invalid_argument,
         "cannot be divided among 3 ranks");
    says(world.all_reduce(ConstBuffer(a.data(), 8, DataType::float8_e4m3),
                          Buffer(b.data(), 8, DataType::float8_e4m3), RedOp::bit_and),
         Code::invalid_argument, "and of float8_e4m3");
    says(world.all_reduce(ConstBuffer(a.data(), 8, DataType::float32, {MemoryKind::cuda, 0}),
                          out(b, 8)),
         Code::unsupported, "cuda");
    says(world.send(in(a, 1), 3), Code::invalid_argument, "destination 3");
    says(world.all_gather_v(in(a, 1), out(b, 3), std::vector<std::uint64_t>{1, 1}),
         Code::invalid_argument, "2 entries for 3 ranks");
    EXPECT_TRUE(world.barrier().wait().is_ok()) << "a refused call does not count";
  });
}

// Rank 1 makes invalid calls, which are refused. If a refused call were counted, the later calls
// would not match.
TEST(Arguments, BadOnesOfOneRankAreNotCounted) {
  for (const char* const transport : {"loopback", "shm", "tcp"}) {
    RankOptions options = three_ranks("20s");
    options.transport = transport;
    run_ranks(options, [](const Communicator& world) {
      std::vector<float> a(8, 1.0F), b(8), got(8);
      const ConstBuffer device(a.data(), 8, DataType::float32, {MemoryKind::cuda, 0});
      const auto refused = [](const Work& work) {
        EXPECT_TRUE(work.ended());
        EXPECT_THAT(work.status().code(), testing::AnyOf(Code::invalid_argument, Code::unsupported))
            << work.status().to_string();
      };
      for (int round = 0; round < 3; ++round) {
        if (world.rank() == 1) {
          refused(world.all_reduce(in(a, 8), out(b, 7)));
          refused(world.all_reduce(device, out(b, 8)));
          refused(world.broadcast(in(a, 8), out(b, 8), 3));
          refused(world.send(in(a, 1), 3));
          refused(world.send(device, 0, 1));
          refused(world.recv(Buffer(nullptr, 8, DataType::float32), 0, 2));
        }
        Status status = world.all_reduce(in(a, 8), out(b, 8)).wait();
        ASSERT_TRUE(status.is_ok()) << status.to_string();
        EXPECT_EQ(b, std::vector<float>(8, 3.0F));
        if (world.rank() == 2) continue;
        const std::uint32_t other = 1 - world.rank(), tag = world.rank() == 1 ? 1 : 2;
        const Work sent = world.send(in(b, 8), other, tag);
        status = wait_all(sent, world.recv(out(got, 8), other, 3 - tag));
        ASSERT_TRUE(status.is_ok()) << status.to_string();
        EXPECT_EQ(got, b);
      }
    });
  }
}

/// Each rank writes its log to its own file.
class Log : public testing::Test {
 protected:
  RankOptions options(const char* timeout) const {
    RankOptions options = three_ranks(timeout);
    options.environment["XYLEM_LOG"] = "warn,file=" + directory_.path() + "/%r";
    return options;
  }
  /// The number of lines of a rank's log that contain `text`.
  std::ptrdiff_t count(std::uint32_t rank, std::string_view text) const {
    std::ifstream file(directory_.path() + "/" + std::to_string(rank));
    EXPECT_TRUE(file.is_open()) << "rank " << rank;
    std::ptrdiff_t lines = 0;
    for (std::string line; std::getline(file, line);) lines += line.find(text) != std::string::npos;
    return lines;
  }

  static constexpr std::string_view kError = "Z error ", kStall = " stalled: ";

 private:
  const TemporaryDirectory directory_;
};

TEST_F(Log, OfATimeOutIsALineOfEachRankAfterOneOfItsStall) {
  RankOptions options = this->options("1500ms");
  options.environment["XYLEM_STALL_REPORT"] = "300ms";
  run_ranks(options, [](const Communicator& world) {
    std::vector<float> a(8, 1.0F), b(8);
    Status status;
    if (world.rank() == 2) {
      const Work other = world.recv(out(b, 8), 0, 99);
      other.set_timeout(std::chrono::seconds(60));
      status = other.wait();
    } else {
      status = world.all_reduce(in(a, 8), out(b, 8)).wait();
    }
    EXPECT_EQ(status.code(), Code::timed_out) << status.to_string();
    EXPECT_EQ(world.barrier().wait().code(), Code::timed_out) << "later errors are not logged";
  });
  for (const std::uint32_t rank : {0, 1, 2}) {
    EXPECT_EQ(count(rank, kError), 1) << rank;
    EXPECT_EQ(count(rank, kStall), rank == 2 ? 0 : 1) << rank;
  }
}

TEST_F(Log, OfAMismatchIsALineOfEachRank) {
  run_ranks(options("20s"), [](const Communicator& world) {
    std::vector<float> a(9, 1.0F), b(9);
    const std::size_t count = world.rank() == 1 ? 9 : 8;
    for (int i = 0; i < 2; ++i)
      EXPECT_EQ(world.all_reduce(in(a, count), out(b, count)).wait().code(), Code::mismatch);
  });
  for (const std::uint32_t rank : {0, 1, 2}) EXPECT_EQ(count(rank, kError), 1) << rank;
}

TEST_F(Log, OfADeathIsALineOfEachSurvivor) {
  run_ranks(options("20s"), [](Runtime& runtime, MemoryHub& hub) {
    auto world = runtime.world();
    auto copy = world.duplicate();
    ASSERT_TRUE(copy.is_ok());
    // When this barrier ends, all ranks have the copy of the communicator.
    Status status = copy->barrier().wait();
    if (world.rank() == 2) return hub.kill(2);
    for (const Communicator& each : {world, *copy})
      EXPECT_EQ(each.barrier().wait().code(), Code::peer_lost);
  });
  for (const std::uint32_t rank : {0, 1}) {
    EXPECT_EQ(count(rank, kError), 1) << rank;
    EXPECT_EQ(count(rank, "rank 2 on"), 1) << rank;
  }
}

TEST_F(Log, OfAnAbortIsNoError) {
  run_ranks(options("20s"), [](Communicator world) {
    std::vector<float> b(8);
    const Work never = world.recv(out(b, 8), (world.rank() + 1) % 3, 1);
    if (world.rank() == 2) {
      EXPECT_TRUE(world.abort("the test says so"));
    }
    EXPECT_EQ(never.wait().code(), Code::cancelled);
  });
  for (const std::uint32_t rank : {0, 1, 2}) EXPECT_EQ(count(rank, kError), 0) << rank;
}

// The failure handlers of all ranks are called, also on a rank that has made no call. Its program
// may never call Xylem, so a thread of Xylem calls the handler.
TEST(Failures, AreToldToAllRanks) {
  std::latch are_told(3);
  run_ranks({.size = 3}, [&](const Communicator& world) {
    std::atomic<int> told{0};
    world.on_failure([&](const Status&) { told = 100; });
    world.on_failure([&](const Status& why) {  // Replaces the first handler.
      EXPECT_THAT(why, testing::AllOf(fails_as(Code::timed_out), blames(1U)));
      ++told;
      are_told.count_down();
    });
    if (world.rank() != 1) {
      const Work never = world.barrier();
      never.set_timeout(std::chrono::milliseconds(300));
      EXPECT_EQ(never.wait().code(), Code::timed_out);
    }
    are_told.wait();
    bool is_told_at_once = false;
    world.on_failure([&](const Status& why) { is_told_at_once = why.code() == Code::timed_out; });
    EXPECT_TRUE(is_told_at_once);
    EXPECT_EQ(told, 1);
  });
}

}  // namespace
}  // namespace xylem::test
