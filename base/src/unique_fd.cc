// SPDX-License-Identifier: Apache-2.0
//
// Closing of descriptors.
#include "xylem/base/unique_fd.h"

#include <unistd.h>

namespace xylem {

void UniqueFd::reset(int fd) noexcept {
  // Linux releases the descriptor even when close() reports EINTR, so it is never retried.
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

}  // namespace xylem
