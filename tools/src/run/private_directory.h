// SPDX-License-Identifier: Apache-2.0
//
// PrivateDirectory: a new directory that only this user can enter. The destructor removes it with
// its contents. If this process is killed, a child process, the remover, removes it. The ranks of
// one host find each other through the directory, so they need no TCP port, which another process
// might already use.
#pragma once

#include "xylem/base/status.h"
#include "xylem/base/unique_fd.h"

#include <sys/types.h>

#include <filesystem>
#include <utility>

namespace xylem::tools {

class PrivateDirectory {
 public:
  /// Makes a directory in the directory for temporary files (TMPDIR). The calling process must have
  /// a single thread.
  static Result<PrivateDirectory> create();

  PrivateDirectory(PrivateDirectory&& other) noexcept
      : path_(std::move(other.path_)),
        alive_(std::move(other.alive_)),
        remover_(std::exchange(other.remover_, 0)) {}
  PrivateDirectory& operator=(PrivateDirectory&&) = delete;
  PrivateDirectory(const PrivateDirectory&) = delete;
  PrivateDirectory& operator=(const PrivateDirectory&) = delete;
  /// Removes the directory.
  ~PrivateDirectory();

  const std::filesystem::path& path() const noexcept { return path_; }
  /// The child process that removes the directory if this process is killed.
  pid_t remover() const noexcept { return remover_; }

 private:
  PrivateDirectory(std::filesystem::path path, UniqueFd alive, pid_t remover)
      : path_(std::move(path)), alive_(std::move(alive)), remover_(remover) {}
  std::filesystem::path path_;
  UniqueFd alive_;     ///< The write end of a pipe; the remover waits until it is closed.
  pid_t remover_ = 0;  ///< 0 after a move.
};

}  // namespace xylem::tools
