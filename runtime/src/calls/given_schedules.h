// SPDX-License-Identifier: Apache-2.0
//
// GivenSchedules: plans from a file of the user (XYLEM_SCHEDULES), which are run in place of the
// plans that Xylem would make. A rank proves all of them before it starts.
#pragma once

#include "config.h"
#include "xylem/base/clock.h"
#include "xylem/base/status.h"
#include "xylem/collectives/schedule.h"

#include <cstdint>
#include <string>
#include <vector>

namespace xylem::runtime {

class GivenSchedules {
 public:
  /// No plans: the user has named no file.
  GivenSchedules() = default;

  /// Reads the file that the configuration names, and proves its plans with verify(), and with
  /// verify_program() for short and long messages. Codes: invalid_argument if the file cannot be
  /// read or holds no schedule; timed_out if it cannot be read by the deadline; bad_schedule, with
  /// the file's name and the claim that fails; unsupported for steps that need the mapped memory of
  /// other ranks.
  static Result<GivenSchedules> load(const Config& config, Deadline deadline);

  /// The schedules of all ranks for a call, or null if the file has none. Shape::per_host is
  /// ignored.
  const std::vector<collectives::Schedule>* find(const collectives::Shape& shape) const noexcept;

  /// The file; empty if there is none.
  const std::string& path() const noexcept { return path_; }
  /// A line for PeerFacts::settings. It differs between ranks whose files have different contents.
  std::string agreed() const;

 private:
  std::string path_;
  std::uint64_t digest_ = 0;
  std::vector<std::vector<collectives::Schedule>> plans_;
};

}  // namespace xylem::runtime
