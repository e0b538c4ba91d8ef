// SPDX-License-Identifier: Apache-2.0
//
// Reports: the reports for programs that `--json` and `--csv` ask for. Rank 0 adds rows as they are
// measured. Whatever ends the session, the rows so far are written to the files. If a signal ends
// the process, a thread writes them.
#pragma once

#include "bench/options.h"
#include "bench/report.h"
#include "bench/report_file.h"
#include "run/signals.h"
#include "xylem/base/mutex.h"
#include "xylem/base/status.h"
#include "xylem/base/unique_fd.h"

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace xylem::tools {

class Reports {
 public:
  /// If there are files to write, starts a thread that waits for the signals that end the process.
  /// Call it while the process has a single thread.
  static Result<std::unique_ptr<Reports>> create(const BenchOptions& options);
  Reports(const Reports&) = delete;
  Reports& operator=(const Reports&) = delete;
  ~Reports();

  /// Opens the files. This function and those that follow are only for rank 0.
  Status open();
  void describe(const BenchEnvironment& environment);
  void add(const BenchRow& row);
  /// Writes the reports of all rows.
  Status write();
  /// Writes the rows so far to the files, unless write() has been called. Waits 2 s at most for a
  /// write() in progress.
  Status write_rows_so_far();

 private:
  struct Report {
    std::string flag, path;
    std::optional<ReportFile> file;  ///< Empty before open(), and for standard output.
  };

  explicit Reports(std::vector<Report> reports) : reports_(std::move(reports)) {}
  Status write_all(bool is_complete) XYLEM_LOCKING(requires_capability(mutex_));
  std::string text_of(const Report& report, bool is_complete) const
      XYLEM_LOCKING(requires_capability(mutex_));
  void watch(Signals& signals);

  Mutex mutex_;
  std::vector<Report> reports_ XYLEM_LOCKING(guarded_by(mutex_));
  BenchEnvironment environment_ XYLEM_LOCKING(guarded_by(mutex_));
  std::vector<BenchRow> rows_ XYLEM_LOCKING(guarded_by(mutex_));
  std::optional<Signals> signals_;
  UniqueFd stop_;  ///< An eventfd that ends the thread.
  std::thread watcher_;
};

}  // namespace xylem::tools
