// SPDX-License-Identifier: Apache-2.0
//
// A source of work that sleeps and wakes. The test only adds it to the list of sources. Waiters,
// even those that sleep, and the progress thread must then serve it.
#include "runtime/src/progress/work_source.h"

#include "runtime/src/progress/progress.h"
#include "runtime/src/progress/progress_thread.h"
#include "support/control_ranks.h"
#include "support/host_peers.h"
#include "support/memory_control.h"
#include "xylem/base/clock.h"
#include "xylem/base/unique_fd.h"

#include <gtest/gtest.h>

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace xylem::runtime {
namespace {

/// Any thread posts letters, and the token holder delivers them.
class Mailbox final : public WorkSource {
 public:
  void post() {
    posted.fetch_add(1, std::memory_order_seq_cst);
    const std::uint64_t one = 1;
    EXPECT_EQ(::write(descriptor_.get(), &one, sizeof one), 8);
  }
  unsigned turn(Token /*token*/) override {
    std::uint64_t drained = 0;
    if (::read(descriptor_.get(), &drained, sizeof drained) != 8) return 0;
    delivered.fetch_add(static_cast<int>(drained));
    return 1;
  }
  Need need() const noexcept override {
    return posted.load(std::memory_order_seq_cst) == delivered ? Need::nothing : need_of_letters;
  }
  bool arm(Token /*token*/, std::vector<pollfd>& descriptors) override {
    descriptors.push_back({descriptor_.get(), POLLIN, 0});
    ++sleeps;
    return posted == delivered;
  }
  bool needs_polling(Token /*token*/) const noexcept override { return polls; }
  void tick(Token /*token*/, Clock::time_point /*now*/) override { ++ticks; }

  std::atomic<int> posted{0}, delivered{0}, sleeps{0}, ticks{0};
  Need need_of_letters = Need::turns;
  bool polls = false;

 private:
  UniqueFd descriptor_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
};

class AMailbox : public testing::Test {
 protected:
  AMailbox() {
    sources.add(mailbox);
    progress.open(WaitPolicy::make(WaitMode::sleep, 1, 1, false), host);
  }
  /// Returns true if a thread without the token observes that the condition becomes true. Makes no
  /// turns.
  bool becomes(const std::function<bool()>& is_true) const {
    while (!is_true() && !patience.passed()) std::this_thread::yield();
    return is_true();
  }

  const Deadline patience = Deadline::after(std::chrono::seconds(20));
  Mailbox mailbox;
  test::NoHostPeers host;
  WorkSources sources;
  Progress progress{sources};
};

TEST_F(AMailbox, WakesAWaiterThatSleeps) {
  constexpr int kLetters = 100;
  std::atomic<bool> is_over{false};
  std::thread waiter([&] { progress.wait(is_over, patience); });
  EXPECT_TRUE(becomes([&] { return mailbox.sleeps > 0; }));
  int late = 0;
  for (int letter = 1; letter <= kLetters; ++letter) {
    const int slept = mailbox.sleeps;
    const auto posted = Clock::now();
    mailbox.post();
    EXPECT_TRUE(becomes([&] { return mailbox.delivered == letter; }));
    // Without a wake-up, a waiter sleeps for 50 ms.
    if (Clock::now() - posted > std::chrono::milliseconds(40)) ++late;
    EXPECT_TRUE(becomes([&] { return mailbox.sleeps > slept; }));
  }
  EXPECT_LT(late, kLetters / 2);
  is_over = true;
  progress.notify();
  waiter.join();
}

TEST_F(AMailbox, KeepsAWaiterAwakeWhileItNeedsPolling) {
  mailbox.polls = true;
  sources.note_device();
  std::atomic<bool> never{false};
  progress.wait(never, Deadline::after(std::chrono::milliseconds(20)));
  EXPECT_EQ(mailbox.sleeps, 0);
  EXPECT_TRUE(progress.needed_polling());
}

class AMailboxWithAThread : public AMailbox {
 protected:
  void start(bool drives) { ASSERT_TRUE(thread.start(*control, events, drives)); }

  const std::shared_ptr<test::MemoryHub> hub = std::make_shared<test::MemoryHub>(1);
  const std::unique_ptr<ControlPlane> control = hub->attach(0);
  test::Recorder events;
  ProgressThread thread{progress, sources};
};

TEST_F(AMailboxWithAThread, IsServedThoughNoThreadWaits) {
  start(/*drives=*/true);
  mailbox.post();
  thread.wake_if_idle();
  EXPECT_TRUE(becomes([&] { return mailbox.delivered == 1; }));
}

TEST_F(AMailboxWithAThread, IsServedAtOnceThoughTheThreadDoesNotDrive) {
  mailbox.need_of_letters = WorkSource::Need::turn_now;
  start(/*drives=*/false);
  mailbox.post();
  thread.wake();
  EXPECT_TRUE(becomes([&] { return mailbox.delivered == 1; }));
  EXPECT_EQ(mailbox.sleeps, 0);
}

TEST_F(AMailboxWithAThread, GetsTicksWhileItNeedsTurns) {
  mailbox.posted = 1;  // A letter that never arrives.
  start(/*drives=*/false);
  EXPECT_TRUE(becomes([&] { return mailbox.ticks > 1; }));
}

}  // namespace
}  // namespace xylem::runtime
