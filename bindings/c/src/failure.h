// SPDX-License-Identifier: Apache-2.0
//
// How the C API reports failures: the code of a Status is returned, and its message and the rank
// that caused it are stored for the thread. No exception leaves a C function.
#pragma once

#include "xylem/base/status.h"
#include "xylem/xylem_c.h"

namespace xylem::c {

/// Returns the code of the status; a failure becomes the thread's last error.
xylem_status report(Status status) noexcept;

/// Stores the current exception as the last error. Call within a catch block.
xylem_status report_exception() noexcept;

/// Runs the body of a C function; the body returns a Status.
template <typename Body>
xylem_status guarded(Body&& body) noexcept {
  try {
    return report(body());
  } catch (...) {
    return report_exception();
  }
}

inline Status null_argument(std::string_view what) {
  return failure(Code::invalid_argument, std::string(what) + " is null");
}

}  // namespace xylem::c
