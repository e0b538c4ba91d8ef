// SPDX-License-Identifier: Apache-2.0
//
// How a Status leaves through the C face: its code is returned, its text and culprit are kept for
// the thread. No exception crosses.
#pragma once

#include "xylem/base/status.h"
#include "xylem/xylem_c.h"

namespace xylem::c {

/// The status's code; a failure becomes the thread's last error.
xylem_status report(Status status) noexcept;

/// Call within a catch block: the exception as a last error.
xylem_status report_exception() noexcept;

/// Runs the body of a C function, which returns a Status.
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
