// SPDX-License-Identifier: Apache-2.0
//
// Closes descriptors.
#include "xylem/base/unique_fd.h"

#include <unistd.h>

namespace xylem {

void UniqueFd::reset(int fd) noexcept {
  // Linux closes the descriptor even if close() reports EINTR, so close() is never repeated.
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

}  // namespace xylem
