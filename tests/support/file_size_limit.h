// SPDX-License-Identifier: Apache-2.0
//
// A limit on the size of files, as by `ulimit -f`.
#pragma once

#include "xylem/base/check.h"

#include <sys/resource.h>

namespace xylem::test {

/// Sets the soft limit of this process, and restores the previous limit in the destructor. The
/// limit also applies if the test's standard output is a file, so print nothing in between.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    XYLEM_CHECK(::getrlimit(RLIMIT_FSIZE, &before_) == 0);
    set({bytes, before_.rlim_max});
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() { set(before_); }

 private:
  static void set(const rlimit& limit) {
    XYLEM_CHECK(::setrlimit(RLIMIT_FSIZE, &limit) == 0, limit.rlim_cur);
  }
  rlimit before_{};
};

}  // namespace xylem::test
