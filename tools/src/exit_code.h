// SPDX-License-Identifier: Apache-2.0
//
// The exit statuses of the command. Scripts rely on them, so they never change.
#pragma once

#include "xylem/base/status.h"

namespace xylem::tools {

inline constexpr int kExitRight = 0;
inline constexpr int kExitWrongResult = 1;
inline constexpr int kExitUsage = 2;   ///< The command line, a file or the environment is wrong.
inline constexpr int kExitPeer = 3;    ///< A peer was lost, disagreed or did not answer in time.
inline constexpr int kExitOutput = 4;  ///< The output could not be written.
inline constexpr int kExitTimedOut = 124;  ///< `run --timeout` has passed; the value of timeout(1).
/// The program was found, but cannot be started; the value that shells use.
inline constexpr int kExitNotRunnable = 126;
inline constexpr int kExitNotFound = 127;  ///< No such program; the value that shells use.
inline constexpr int kExitSignal = 128;    ///< A signal ended the program: add its number.

/// The exit status after `failure`: kExitUsage for errors that the user can correct, kExitPeer for
/// all others.
constexpr int exit_code(Code code) noexcept {
  switch (code) {
    case Code::ok: return kExitRight;
    case Code::invalid_argument:
    case Code::unsupported: return kExitUsage;
    default: return kExitPeer;
  }
}

}  // namespace xylem::tools
