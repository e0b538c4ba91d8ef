// SPDX-License-Identifier: Apache-2.0
//
// Files that users name: opening and reading them within bounds, and writing them without signals
// that end the process.
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

/// Opens a file as open(2) does, but never waits for the other end of a FIFO. If another process
/// has a lease on the file, waits at most until `deadline` for it to end. Without a descriptor,
/// errno has the reason. Reads and writes of the descriptor do not block either, except in regular
/// files.
UniqueFd open_promptly(const std::string& path, int flags, Deadline deadline, mode_t mode = 0);

/// The content of a regular file; nothing if there is no such file. Fails with invalid_argument if
/// the file is of another kind (a FIFO or a device may have no end), has more than `most` bytes, or
/// cannot be read. The message says what is wrong and what to do, but not the file's name. A file
/// system that does not answer (NFS without its server) is waited for.
Result<std::optional<std::string>> read_regular_file(const std::string& path,
                                                     Bytes most,
                                                     Deadline deadline);

/// The content of a file of any kind, also of a pipe, whose writer is waited for. Otherwise like
/// read_regular_file().
Result<std::string> read_any_file(const std::string& path, Bytes most);

/// While one exists, a write or resize by this thread fails with EFBIG beyond the limit on the size
/// of files (ulimit -f), and with EPIPE if a pipe has no reader. Otherwise the process would be
/// ended by SIGXFSZ or SIGPIPE.
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

/// The text for a failed write or resize: that of `error`, and for EFBIG also the limit on the size
/// of files, and how to raise it.
std::string write_error_text(int error);

}  // namespace xylem
