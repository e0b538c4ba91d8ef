// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace xylem {

/// How one collective call would be (or was) carried out; the same on all ranks.
struct PlanInfo {
  std::string algorithm;
  double predicted_us = 0;
  std::string runner_up;  ///< The next best; empty if no other algorithm can do the call.
  double runner_up_us = 0;
  std::string reason;
  /// The algorithm of such a call on a stream, if the devices carry it out by themselves
  /// (Communicator::bind()). Empty otherwise.
  std::string on_stream;
};

}  // namespace xylem
