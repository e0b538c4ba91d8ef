// SPDX-License-Identifier: Apache-2.0
//
// The launcher's loop: one poll() over signals and output pipes. SIGCHLD announces the end of a
// rank or of an orphaned descendant.
#include "run/job.h"

#include "exit_code.h"
#include "run/rank.h"
#include "run/signals.h"
#include "xylem/base/check.h"
#include "xylem/base/clock.h"

#include <fmt/format.h>

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <system_error>

namespace xylem::tools {
namespace {

/// How long the processes of the job may take to end by themselves after SIGTERM.
constexpr std::chrono::seconds kGrace{3};

enum class Phase : std::uint8_t { running, failing, ending, killing };

class Job {
 public:
  /// `remover` is a child of this process that does not belong to the job.
  Job(const JobOptions& options, const Signals& signals, pid_t remover)
      : options_(options), signals_(signals), remover_(remover) {
    if (options_.timeout) deadline_ = Deadline::after(*options_.timeout);
  }
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  Status start(const std::vector<RankOptions>& ranks);
  JobOutcome run();

 private:
  void wait();
  void on_signals();
  void on_output();
  /// Ends the job if standard output cannot be written.
  void on_lost_output();
  void on_endings();
  void on_deadline();
  void on_failure(std::uint32_t rank, const Ending& ending);
  void begin_ending();
  void signal_all(int signal) const;
  /// Whether no process of the job is alive. If all ranks have ended, ends their descendants that
  /// are still alive.
  bool over();
  void say(std::string_view text);
  bool ended_by_us() const { return phase_ == Phase::ending || phase_ == Phase::killing; }
  std::size_t alive() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(ranks_, [](const Rank& rank) { return !rank.ending; }));
  }

  const JobOptions& options_;
  const Signals& signals_;
  pid_t remover_;
  Sink output_{STDOUT_FILENO};
  Sink error_{STDERR_FILENO};
  std::vector<Rank> ranks_;
  std::size_t turn_ = 0;   ///< The rank whose output is forwarded first.
  std::set<pid_t> asked_;  ///< Descendants of ranks that have received SIGTERM.
  Phase phase_ = Phase::running;
  std::optional<Deadline> deadline_;  ///< When the phase ends; empty: no time limit.
  JobOutcome outcome_;
};

Job::~Job() {
  // Kill the ranks' process groups, since /proc, and so over(), may not show all processes in them.
  for (Rank& rank : ranks_) {
    rank.process.signal_group(SIGKILL);
    rank.process.reap();
  }
  // Reap orphaned descendants; without an init process that reaps, they would stay zombies.
  while (::waitpid(-1, nullptr, WNOHANG) > 0) {
  }
}

Status Job::start(const std::vector<RankOptions>& ranks) {
  for (const RankOptions& options : ranks) {
    XYLEM_TRY(Rank rank, start_rank(options, output_, error_));
    ranks_.push_back(std::move(rank));
  }
  return {};
}

JobOutcome Job::run() {
  while (!over()) {
    wait();
    on_signals();
    on_output();
    on_endings();
    on_deadline();
  }
  for (const Rank& rank : ranks_) {
    XYLEM_CHECK(rank.ending.has_value());
    outcome_.endings.push_back(*rank.ending);
  }
  on_lost_output();  // Also checks the last lines.
  // If standard error is closed, or its reader has exited, the loss of its lines is not reported.
  const int error = error_.error();
  if (error != 0 && error != EPIPE && error != EBADF) outcome_.output_lost = true;
  return std::move(outcome_);
}

void Job::wait() {
  std::vector<pollfd> watched{{signals_.fd(), POLLIN, 0}};
  for (const Sink* sink : {&output_, &error_}) {
    if (!sink->empty()) watched.push_back({sink->fd(), POLLOUT, 0});
  }
  for (const Rank& rank : ranks_) {
    for (const OutputStream* stream : {&rank.output, &rank.error}) {
      if (stream->open() && !stream->sink().full()) watched.push_back({stream->fd(), POLLIN, 0});
    }
  }
  ::poll(watched.data(), watched.size(), deadline_ ? deadline_->left_ms() : -1);
}

void Job::on_signals() {
  while (const auto signal = signals_.next()) {
    if (*signal == SIGCHLD) continue;  // on_endings() and over() find what has ended.
    if (ended_by_us()) {
      phase_ = Phase::killing;
      signal_all(SIGKILL);
    } else {
      outcome_.interrupted_by = *signal;
      begin_ending();
    }
  }
}

void Job::on_output() {
  // If a sink becomes full, the next call begins with the first rank whose output was not
  // forwarded.
  std::optional<std::size_t> passed_over;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const std::size_t index = (turn_ + i) % ranks_.size();
    if (!passed_over && (output_.full() || error_.full())) passed_over = index;
    ranks_[index].output.forward();
    ranks_[index].error.forward();
  }
  turn_ = passed_over.value_or(turn_);
  output_.flush();
  error_.flush();
  on_lost_output();
}

void Job::on_lost_output() {
  if (output_.error() == 0 || ended_by_us()) return;
  if (output_.error() == EPIPE) {
    outcome_.interrupted_by = SIGPIPE;
  } else {
    outcome_.output_lost = true;
    say(fmt::format("standard output cannot be written: {}{}",
                    std::generic_category().message(output_.error()),
                    alive() > 0 ? ": ending the job" : ""));
  }
  begin_ending();
}

void Job::on_endings() {
  // When a signal kills a rank, other ranks exit because of it, and these exits may be detected
  // first. So a death by a signal counts as the first failure, even if ranks have exited before.
  std::optional<JobOutcome::Failure> first;
  for (std::uint32_t i = 0; i < ranks_.size(); ++i) {
    Rank& rank = ranks_[i];
    if (rank.ending) continue;
    rank.ending = rank.process.ending();
    if (!rank.ending || !rank.ending->failed()) continue;
    if (!first || (rank.ending->signal != 0 && first->ending.signal == 0)) {
      first = JobOutcome::Failure{i, *rank.ending};
    }
  }
  if (!first) return;
  const bool explains = phase_ == Phase::failing && first->ending.signal != 0 && outcome_.failure &&
                        outcome_.failure->ending.signal == 0;
  if (phase_ != Phase::running && !explains) return;
  // Print the last output of the rank before the report about it.
  ranks_[first->rank].output.forward();
  ranks_[first->rank].error.forward();
  on_failure(first->rank, first->ending);
}

void Job::on_failure(std::uint32_t rank, const Ending& ending) {
  outcome_.failure = JobOutcome::Failure{rank, ending};
  const bool others = alive() > 0;
  const bool at_once = options_.failure_grace == std::chrono::nanoseconds::zero();
  if (!options_.explained_exits || ending.signal != 0) {
    say(fmt::format("rank {} {}{}", rank, ending.to_string(),
                    others && at_once ? ": ending the other ranks" : ""));
  }
  phase_ = Phase::failing;
  const auto patience = Deadline::after(options_.failure_grace);
  deadline_ = deadline_ ? earlier(*deadline_, patience) : patience;
}

void Job::on_deadline() {
  if (!deadline_ || !deadline_->passed()) return;
  switch (phase_) {
    case Phase::running:
      outcome_.timed_out = true;
      say(fmt::format("{} of {} ranks still run at the time-out: ending the job", alive(),
                      ranks_.size()));
      begin_ending();
      break;
    case Phase::failing: begin_ending(); break;
    case Phase::ending:
      say(fmt::format("killing what did not end within {} s of SIGTERM", kGrace.count()));
      phase_ = Phase::killing;
      deadline_.reset();
      signal_all(SIGKILL);
      break;
    case Phase::killing: break;
  }
}

void Job::begin_ending() {
  phase_ = Phase::ending;
  deadline_ = Deadline::after(kGrace);
  signal_all(SIGTERM);
}

void Job::signal_all(int signal) const {
  for (const Rank& rank : ranks_) {
    rank.process.signal_group(signal);
    rank.process.signal_group(SIGCONT);  // A stopped process does not handle SIGTERM.
  }
}

bool Job::over() {
  if (alive() > 0) return false;
  const auto left = live_children(remover_);
  if (left.empty()) {
    for (Rank& rank : ranks_) {
      rank.output.finish();
      rank.error.finish();
    }
    return (output_.empty() && error_.empty()) || phase_ == Phase::killing;
  }
  if (!ended_by_us()) {
    say(fmt::format("ending {} that ranks left behind",
                    left.size() == 1 ? "a process" : fmt::format("{} processes", left.size())));
    begin_ending();
  }
  // A process that has left the process group of its rank became a child of the launcher when its
  // parent ended.
  for (const pid_t pid : left) {
    if (phase_ == Phase::killing) ::kill(pid, SIGKILL);
    else if (asked_.insert(pid).second) ::kill(pid, SIGTERM);
  }
  return false;
}

void Job::say(std::string_view text) {
  error_.append(fmt::format("{}: {}\n", options_.speaker, text));
  error_.flush();
}

}  // namespace

int JobOutcome::exit_status() const noexcept {
  if (interrupted_by != 0) return kExitSignal + interrupted_by;
  if (timed_out) return kExitTimedOut;
  if (failure) return failure->ending.shell_status();
  return output_lost ? kExitOutput : kExitRight;
}

Result<JobOutcome> run_job(const JobOptions& options) {
  // Orphaned descendants become children of this process, so over() finds them.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  XYLEM_TRY(const Signals signals, Signals::take());
  XYLEM_TRY(const Membership membership, Membership::create(options.ranks));
  Job job(options, signals, membership.remover());
  std::vector<RankOptions> ranks;
  for (std::uint32_t rank = 0; rank < options.ranks; ++rank) {
    RankOptions one;
    one.process.command = options.command;
    one.process.environment = membership.environment(rank);
    one.process.environment.insert(one.process.environment.end(), options.variables.begin(),
                                   options.variables.end());
    if (!options.cpus.empty()) one.process.cpus = options.cpus[rank];
    one.process.signal_mask = signals.former_mask();
    one.prefix = options.prefix ? fmt::format("[{}] ", rank) : "";
    one.first = rank == 0;
    one.direct = rank == 0 && options.first_rank_direct;
    ranks.push_back(std::move(one));
  }
  XYLEM_TRY(job.start(ranks));
  return job.run();
}

}  // namespace xylem::tools
