// SPDX-License-Identifier: Apache-2.0
//
// Files that users name. Opening and reading them is bounded in time and size, and writing them
// raises no signal that ends the process.
#pragma once

#include "xylem/base/clock.h"
#include "xylem/base/quantity.h"
#include "xylem/base/status.h"
#include "xylem/base/unique_fd.h"

#include <sys/types.h>

#include <csignal>
#include <optional>
#include <string>

namespace xylem {

/// Opens a file as open(2) does, but does not block until a FIFO has a process at its other end. If
/// another process has a lease on the file, tries again until `deadline`. On failure the result is
/// empty, and errno says why. Reads and writes of the descriptor do not block either, except in
/// regular files.
UniqueFd open_promptly(const std::string& path, int flags, Deadline deadline, mode_t mode = 0);

/// The content of a regular file; nothing if there is no such file. Fails with invalid_argument if
/// the file is of another kind (a FIFO or a device may have no end), has more than `most` bytes, or
/// cannot be read. The message says what is wrong and what to do, but not the file's name. Blocks
/// while a file system does not answer (NFS without its server).
Result<std::optional<std::string>> read_regular_file(const std::string& path,
                                                     Bytes most,
                                                     Deadline deadline);

/// The content of a file of any kind. For a pipe, blocks until its writers have closed it. A
/// missing file is an error. Otherwise like read_regular_file().
Result<std::string> read_any_file(const std::string& path, Bytes most);

/// While an object of this class exists, a write or resize by this thread fails with EFBIG beyond
/// the limit on the size of files (ulimit -f), and a write to a pipe without a reader fails with
/// EPIPE. Without the object, SIGXFSZ or SIGPIPE would end the process.
class WriteSignalsBlocked {
 public:
  WriteSignalsBlocked() noexcept;
  WriteSignalsBlocked(const WriteSignalsBlocked&) = delete;
  WriteSignalsBlocked& operator=(const WriteSignalsBlocked&) = delete;
  /// Leaves errno as it is.
  ~WriteSignalsBlocked();

 private:
  sigset_t mask_before_{}, pending_before_{};
};

/// Text for a failed write or resize: the system's text for `error` and, for EFBIG, the limit on
/// the size of files and how to raise it.
std::string write_error_text(int error);

}  // namespace xylem
