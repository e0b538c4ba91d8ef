// SPDX-License-Identifier: Apache-2.0
//
// Access to files whose names come from the user, and which may be FIFOs, devices or very large.
// Reads are limited in size, and a failed write raises no signal that ends the process.
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

/// Like open(2), in non-blocking mode (O_NONBLOCK): opening a FIFO does not wait for a process at
/// its other end, and reads and writes of the descriptor do not block, except in regular files. If
/// another process holds a lease on the file (F_SETLEASE of fcntl(2)), retries until `deadline`. On
/// failure the result is empty, and errno is set.
UniqueFd open_promptly(const std::string& path, int flags, Deadline deadline, mode_t mode = 0);

/// The content of a regular file; nullopt if the file does not exist. Fails with invalid_argument
/// if the file is of another kind (a FIFO or a device may have no end), has more than `most` bytes,
/// or cannot be read. The error text states the problem and the remedy, but not the file's name.
/// `deadline` limits only the wait for a lease on the file: the call may block longer if the file
/// system does not respond (NFS without its server).
Result<std::optional<std::string>> read_regular_file(const std::string& path,
                                                     Bytes most,
                                                     Deadline deadline);

/// The content of a file of any kind. For a FIFO, blocks until its writers have closed it. Fails
/// with invalid_argument if the file does not exist, has more than `most` bytes, or cannot be read.
Result<std::string> read_any_file(const std::string& path, Bytes most);

/// Blocks SIGXFSZ and SIGPIPE for this thread while the object exists. A write or resize beyond the
/// limit on file sizes (ulimit -f) then fails with EFBIG, and a write to a pipe without a reader
/// fails with EPIPE. Without the object, the signal would end the process.
class WriteSignalsBlocked {
 public:
  WriteSignalsBlocked() noexcept;
  WriteSignalsBlocked(const WriteSignalsBlocked&) = delete;
  WriteSignalsBlocked& operator=(const WriteSignalsBlocked&) = delete;
  /// Discards the signals that were raised meanwhile, and restores the signal mask. Preserves
  /// errno.
  ~WriteSignalsBlocked();

 private:
  sigset_t mask_before_{}, pending_before_{};
};

/// The text for a failed write or resize: the system's text for `error` and, for EFBIG, the limit
/// on file sizes and how to raise it.
std::string write_error_text(int error);

}  // namespace xylem
