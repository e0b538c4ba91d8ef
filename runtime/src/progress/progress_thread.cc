// SPDX-License-Identifier: Apache-2.0
#include "progress/progress_thread.h"

#include "bootstrap/service_thread.h"
#include "xylem/base/clock.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>

namespace xylem::runtime {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr milliseconds kBusyLook{1};  ///< Time between two looks, except while the thread dozes.
/// Time between two looks while another thread drives progress for long.
constexpr milliseconds kDrivenLook{5};
/// Time between two looks while a device has work, since no descriptor signals the end of this
/// work.
constexpr microseconds kDeviceLook{50};
constexpr milliseconds kTick{50};  ///< Time between two WorkSource ticks, while work is pending.
/// Time between two looks while the thread dozes, at first and later.
constexpr milliseconds kFirstDoze{10}, kLaterDoze{1000};
/// After so many looks that find nothing to do, the thread dozes: it sleeps until new work wakes
/// it, or until the next look.
constexpr unsigned kLooksUntilDoze = 10;
/// After so many looks that find nothing to do, each doze takes kLaterDoze.
constexpr unsigned kLooksUntilLater = 20;
/// After so many looks in a row that find work but no user thread, the thread drives progress.
constexpr unsigned kLooksUnattended = 2;

}  // namespace

ProgressThread::ProgressThread(Progress& progress, WorkSources& sources)
    : progress_(progress), sources_(sources), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  progress.set_attendant(*this);
}

Status ProgressThread::start(ControlPlane& control, ControlListener& listener, bool drives) {
  drives_ = drives;
  XYLEM_TRY(thread_, start_service_thread("drive progress", [&] { run(control, listener); }));
  return {};
}

void ProgressThread::stop() noexcept {
  stop_ = true;
  wake();
  if (thread_.joinable()) thread_.join();
}

void ProgressThread::wake() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof one);
}

void ProgressThread::run(ControlPlane& control, ControlListener& listener) {
  ::prctl(PR_SET_NAME, "xylem progress");
  // Linux adds up to 50 us to a sleep by default, which would double kDeviceLook.
  ::prctl(PR_SET_TIMERSLACK, 1000UL);
  Attention attention;
  auto next_tick = Clock::now() + kTick;
  auto control_due = Clock::now();
  while (!stop_.load(std::memory_order_relaxed)) {
    const bool busy = has_work();
    microseconds wait = attention.wait;
    if (attention.quiet_looks > kLooksUntilDoze) {
      announce(dozes_);
      if (!has_work()) wait = attention.quiet_looks > kLooksUntilLater ? kLaterDoze : kFirstDoze;
    }
    if (wait > kDeviceLook) {
      announce(sleeps_);
      if (attends_device()) wait = microseconds(0);
    }
    const auto until_control = std::chrono::ceil<microseconds>(control_due - Clock::now());
    const auto limit = std::clamp(until_control, microseconds(0), wait);
    const timespec timeout{.tv_sec = limit.count() / 1'000'000,
                           .tv_nsec = limit.count() % 1'000'000 * 1000};
    pollfd descriptors[] = {{control.fd(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    ::ppoll(descriptors, 2, &timeout, nullptr);
    dozes_.store(false, std::memory_order_relaxed);
    sleeps_.store(false, std::memory_order_relaxed);
    std::uint64_t drained = 0;
    if (descriptors[1].revents != 0) {
      [[maybe_unused]] const auto got = ::read(wake_.get(), &drained, sizeof drained);
    }
    control_due = control.serve(listener);
    if (Clock::now() >= next_tick) {
      next_tick = Clock::now() + kTick;
      if (busy) sources_.request_tick();
    }
    if (sources_.need() == WorkSource::Need::turn_now) {
      progress_.notify();
      progress_.turn_if_free();
    }
    attend(attention, control.fd());
  }
}

/// Drives progress if there is work that no user thread has driven for two looks. If a source needs
/// polling, as when a device has work, drives progress at once. Without work, the thread still
/// makes a turn at each look, since a peer may need this rank to make a connection, or to free
/// memory for its messages.
void ProgressThread::attend(Attention& attention, int control_fd) {
  const auto visits = progress_.visits();
  const bool is_held = progress_.held();
  const bool is_visited = visits != attention.visits || is_held;
  const bool is_driven = visits == attention.visits && is_held;
  attention.visits = visits;
  const bool busy = has_work();
  const bool has_device_work = busy && attends_device();
  attention.wait = has_device_work ? kDeviceLook : is_driven ? kDrivenLook : kBusyLook;
  attention.note(is_visited, is_driven, busy);
  const bool is_early = is_visited || (busy && attention.unattended < kLooksUnattended);
  if (!drives_ || (is_early && !has_device_work) || !progress_.try_acquire()) return;
  const Token token = progress_.assert_held();
  auto worked = progress_.work_off(stop_);
  if (worked != Progress::Worked::nothing) attention.spins_for_device = true;
  if (progress_.needs_polling(token) && worked != Progress::Worked::interrupted &&
      attention.spins_for_device) {
    const auto spun = progress_.spin_for_device(stop_);
    attention.spins_for_device = spun != Progress::Worked::nothing;
    worked = std::max(worked, spun);
  }
  if (worked != Progress::Worked::nothing) attention.quiet_looks = 0;
  // Sleeps on the descriptors of the transports, since the thread then reacts sooner than at the
  // next look. doze() may refuse, as when messages wait for room in a transport.
  const bool slept = busy && worked != Progress::Worked::interrupted && has_work() &&
                     progress_.doze(pollfd{control_fd, POLLIN, 0});
  if (!slept && progress_.needs_polling(token)) attention.wait = kDeviceLook;
  progress_.release();
  if (slept || worked == Progress::Worked::interrupted) attention.wait = microseconds(0);
}

}  // namespace xylem::runtime
