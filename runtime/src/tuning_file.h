// SPDX-License-Identifier: Apache-2.0
//
// The tuning file: keeps the measured constants of machines between jobs, each under the
// fingerprint of its hardware and of the network between the hosts.
#pragma once

#include "network_costs.h"
#include "xylem/base/clock.h"
#include "xylem/base/status.h"
#include "xylem/collectives/estimate.h"
#include "xylem/transport/transport.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace xylem::runtime {

/// What is measured at start.
struct Tuning {
  collectives::CostModel model;
  /// The samples of all hosts, from which set_network() makes the costs between hosts.
  std::vector<NetworkSample> network;
  /// The hosts with their ports, and what carries payload, as text. Measurements are valid only for
  /// the same.
  std::string ports;
  /// Within a host, a receiver copies messages of at least this many bytes directly out of the
  /// sender's process, since this is faster. kAnySize: a receiver never does so. Not set if not
  /// measured.
  std::optional<std::uint64_t> pull_from;
};

/// Returns `tuning` with the values of the file; nothing if there is no file or if it has no entry
/// for this hardware. Fails with `invalid_argument` if the file does not contain tuning data; such
/// a file is not overwritten. Fails with `timed_out` if it cannot be read by the deadline.
Result<std::optional<Tuning>> load_tuning(const std::string& path,
                                          const Tuning& tuning,
                                          Deadline deadline);
/// Adds or replaces the entry of this hardware. Writes a new file, then renames it into place.
Status save_tuning(const std::string& path, const Tuning& tuning, Deadline deadline);

}  // namespace xylem::runtime
