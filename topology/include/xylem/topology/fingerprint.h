// SPDX-License-Identifier: Apache-2.0
//
// Fingerprint: identifies a kind of machine. Hosts with the same hardware have the same
// fingerprint, so measurements on one of these hosts can be used on the others.
#pragma once

#include "xylem/topology/topology.h"

#include <compare>
#include <cstdint>
#include <string>

namespace xylem::topology {

struct Fingerprint {
  std::uint64_t value = 0;

  /// The fingerprint as sixteen hexadecimal digits.
  std::string to_string() const;

  friend auto operator<=>(const Fingerprint&, const Fingerprint&) = default;
};

/// Hashes CPU models, packages, cores, NUMA nodes and their packages, the models of GPUs and NICs,
/// and the class of the path from each GPU to each NIC and GPU. Host name, bus addresses, link
/// states and device names are left out, since they differ between equal hosts or change over time.
/// The value is the same on every platform and in every build.
Fingerprint fingerprint(const Topology& topology);

}  // namespace xylem::topology
