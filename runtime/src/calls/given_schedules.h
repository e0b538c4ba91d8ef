// SPDX-License-Identifier: Apache-2.0
//
// GivenSchedules: the schedules in a file that the user names (XYLEM_SCHEDULES). They replace the
// schedules that Xylem would make. Each rank verifies all of them when it starts.
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
  /// Holds no schedules, since the user has named no file.
  GivenSchedules() = default;

  /// Reads the file that the configuration names, and verifies its schedules: with verify(), and
  /// with verify_program() for short and long messages. Codes: `invalid_argument` if the file
  /// cannot be read or holds no schedule; `timed_out` if it cannot be read by the deadline;
  /// `bad_schedule`, with the name of the file and the property that a schedule violates;
  /// `unsupported` for steps that need the mapped memory of other ranks.
  static Result<GivenSchedules> load(const Config& config, Deadline deadline);

  /// The schedules of all ranks for calls of this shape, or null if the file has none.
  /// Shape::per_host is ignored.
  const std::vector<collectives::Schedule>* find(const collectives::Shape& shape) const noexcept;

  /// The path of the file; empty if the user has named none.
  const std::string& path() const noexcept { return path_; }
  /// A line for PeerFacts::settings, which all ranks compare. It contains a hash of the file, so
  /// the start fails if ranks have different files.
  std::string agreed() const;

 private:
  std::string path_;
  std::uint64_t digest_ = 0;
  std::vector<std::vector<collectives::Schedule>> plans_;
};

}  // namespace xylem::runtime
