// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace xylem {

/// How a collective call is carried out; the same on all ranks.
struct PlanInfo {
  std::string algorithm;
  double predicted_us = 0;
  std::string runner_up;  ///< The next best algorithm; empty if no other one can do the call.
  double runner_up_us = 0;
  std::string reason;
  /// The algorithm of the same call on device memory, if Communicator::binding() is not `none`.
  /// Empty otherwise.
  std::string on_devices;
  /// The algorithm of the same call on a stream, if the devices of a mesh carry it out by
  /// themselves (Communicator::bind()). Empty otherwise.
  std::string on_stream;
};

}  // namespace xylem
