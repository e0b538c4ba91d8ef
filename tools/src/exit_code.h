// SPDX-License-Identifier: Apache-2.0
//
// What the command's exit statuses mean; scripts rely on them, so they never change.
#pragma once

#include "xylem/base/status.h"

namespace xylem::tools {

inline constexpr int kExitRight = 0;
inline constexpr int kExitWrongResult = 1;
inline constexpr int kExitUsage = 2;   ///< The command line, a file or the environment is at fault.
inline constexpr int kExitPeer = 3;    ///< A peer was lost, disagreed or did not come in time.
inline constexpr int kExitOutput = 4;  ///< The output could not be written.
inline constexpr int kExitTimedOut = 124;     ///< `run --timeout` passed, as timeout(1) says it.
inline constexpr int kExitNotRunnable = 126;  ///< As shells say it: found, but cannot be started.
inline constexpr int kExitNotFound = 127;     ///< As shells say it: no such program.
inline constexpr int kExitSignal = 128;       ///< Plus the signal's number.

/// The status to exit with after `failure`: what the user can mend is usage, all else came from the
/// job.
constexpr int exit_code(Code code) noexcept {
  switch (code) {
    case Code::ok: return kExitRight;
    case Code::invalid_argument:
    case Code::unsupported: return kExitUsage;
    default: return kExitPeer;
  }
}

}  // namespace xylem::tools
