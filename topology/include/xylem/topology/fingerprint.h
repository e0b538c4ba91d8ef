// SPDX-License-Identifier: Apache-2.0
//
// A name for a kind of machine: hosts of the same hardware have the same fingerprint, so that what
// was measured on one may be used on its like.
#pragma once

#include "xylem/topology/topology.h"

#include <compare>
#include <cstdint>
#include <string>

namespace xylem::topology {

struct Fingerprint {
  std::uint64_t value = 0;

  /// Sixteen hexadecimal digits.
  std::string to_string() const;

  friend auto operator<=>(const Fingerprint&, const Fingerprint&) = default;
};

/// Hashes CPU models, packages, cores, NUMA nodes and their packages, the models of GPUs and NICs,
/// and how near each GPU is to each NIC and GPU. Host name, bus addresses, link states and names do
/// not count: they differ between equal hosts or from day to day. The value is the same on every
/// platform and in every build.
Fingerprint fingerprint(const Topology& topology);

}  // namespace xylem::topology
