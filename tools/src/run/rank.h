// SPDX-License-Identifier: Apache-2.0
//
// Rank: one process of a job, with its output streams. Membership: the environment variables
// through which the ranks of a job, and no other processes, find each other.
#pragma once

#include "run/output.h"
#include "run/private_directory.h"
#include "run/process.h"
#include "xylem/base/status.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace xylem::tools {

struct RankOptions {
  ProcessOptions process;
  std::string prefix;
  /// The first rank inherits the launcher's standard input, unless this is a terminal. The standard
  /// input of all other ranks is empty.
  bool first = false;
  bool direct = false;  ///< The rank inherits the launcher's output streams.
};

struct Rank {
  Process process;
  OutputStream output, error;
  std::optional<Ending> ending;
};

/// Starts a rank whose lines go to `output` and `error`, which must outlive it.
Result<Rank> start_rank(const RankOptions& options, Sink& output, Sink& error);

/// The job's identity, its secret, and the directory in which its ranks find each other. The
/// directory is removed on destruction.
class Membership {
 public:
  static Result<Membership> create(std::uint32_t ranks);
  /// The variables of one rank.
  std::vector<std::pair<std::string, std::string>> environment(std::uint32_t rank) const;
  /// See PrivateDirectory::remover().
  pid_t remover() const noexcept { return directory_.remover(); }

 private:
  Membership(PrivateDirectory directory, std::uint32_t ranks, std::string job, std::string secret)
      : directory_(std::move(directory)),
        ranks_(ranks),
        job_(std::move(job)),
        secret_(std::move(secret)) {}

  PrivateDirectory directory_;
  std::uint32_t ranks_;
  std::string job_, secret_;
};

}  // namespace xylem::tools
