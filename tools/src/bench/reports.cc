// SPDX-License-Identifier: Apache-2.0
//
// Writes reports at the end of a session or at a signal, whichever comes first.
#include "bench/reports.h"

#include "xylem/base/clock.h"
#include "xylem/base/mutex.h"

#include <fmt/format.h>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <system_error>
#include <thread>
#include <utility>

namespace xylem::tools {
namespace {

constexpr std::string_view kStandardOutput = "-";

Status print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) {
    return {};
  }
  return failure(Code::invalid_argument, fmt::format("standard output cannot be written: {}",
                                                     std::generic_category().message(errno)));
}

}  // namespace

Result<std::unique_ptr<Reports>> Reports::create(const BenchOptions& options) {
  std::vector<Report> asked;
  bool has_files = false;
  for (const auto& [flag, path] :
       {std::pair("--json", options.json), std::pair("--csv", options.csv)}) {
    if (path.empty()) continue;
    asked.push_back({flag, path, std::nullopt});
    has_files |= path != kStandardOutput;
  }
  std::unique_ptr<Reports> made(new Reports(std::move(asked)));
  if (!has_files) return made;
  XYLEM_TRY(Signals taken, Signals::take());
  Signals& signals = made->signals_.emplace(std::move(taken));
  made->stop_.reset(::eventfd(0, EFD_CLOEXEC));
  if (!made->stop_) {
    return failure(Code::exhausted, fmt::format("cannot make an event descriptor: {}",
                                                std::generic_category().message(errno)));
  }
  made->watcher_ = std::thread([reports = made.get(), &signals] { reports->watch(signals); });
  return made;
}

Reports::~Reports() {
  if (!watcher_.joinable()) return;
  ::eventfd_write(stop_.get(), 1);
  watcher_.join();
}

Status Reports::open() {
  // The files are opened without the mutex, since opening a named pipe blocks until the pipe has a
  // reader.
  std::vector<Report> reports;
  {
    const Lock lock(mutex_);
    reports.swap(reports_);
  }
  for (Report& report : reports) {
    if (report.path == kStandardOutput) continue;
    auto file = ReportFile::open(report.path);
    if (!file) {
      return failure(file.code(), fmt::format("{} {}", report.flag, file.status().message()));
    }
    report.file.emplace(*std::move(file));
  }
  const Lock lock(mutex_);
  reports_.swap(reports);
  return {};
}

void Reports::describe(const BenchEnvironment& environment) {
  const Lock lock(mutex_);
  environment_ = environment;
}

void Reports::add(const BenchRow& row) {
  const Lock lock(mutex_);
  rows_.push_back(row);
}

Status Reports::write_rows_so_far() {
  // write() may be holding the mutex while it blocks on a pipe that no process reads.
  const Deadline patience = Deadline::after(std::chrono::seconds(2));
  while (!mutex_.try_lock()) {
    if (patience.passed()) return {};
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const Lock lock(mutex_, std::adopt_lock);
  return rows_.empty() ? Status() : write_all(false);
}

Status Reports::write() {
  const Lock lock(mutex_);
  return write_all(true);
}

Status Reports::write_all(bool is_complete) {
  Status first;
  for (Report& report : std::exchange(reports_, {})) {
    Status status;
    if (report.file) status = report.file->write(text_of(report, is_complete));
    else if (is_complete) status = print(text_of(report, is_complete));
    if (first && !status) {
      first = failure(status.code(), fmt::format("{} {}", report.flag, status.message()));
    }
  }
  return first;
}

std::string Reports::text_of(const Report& report, bool is_complete) const {
  return report.flag == "--csv" ? to_csv(rows_) : to_json(environment_, rows_, is_complete);
}

void Reports::watch(Signals& signals) {
  pollfd watched[] = {{signals.fd(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
  while (::poll(watched, std::size(watched), -1) < 0 || watched[1].revents == 0) {
    const auto signal = signals.next();
    if (!signal || *signal == SIGCHLD) continue;
    if (const Status status = write_rows_so_far(); !status) {
      std::fprintf(stderr, "xylem bench: %s\n", std::string(status.message()).c_str());
    }
    // Restore the default action, so that the signal ends the process.
    std::signal(*signal, SIG_DFL);
    sigset_t set;
    ::sigemptyset(&set);
    ::sigaddset(&set, *signal);
    ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
    ::raise(*signal);
  }
}

}  // namespace xylem::tools
