// SPDX-License-Identifier: Apache-2.0
//
// The property of all topology readers for any input text. Reading returns an error that names the
// source, or a topology with these properties: every writer can write it, its paths are symmetric,
// and it does not change when it is written as JSON and read again.
#pragma once

#include "xylem/base/check.h"
#include "xylem/topology/fingerprint.h"
#include "xylem/topology/path.h"
#include "xylem/topology/readers.h"
#include "xylem/topology/writers.h"

#include <algorithm>
#include <string>

namespace xylem::topology::test {

/// Large enough to find every class of path, and small enough for files with thousands of devices.
inline constexpr std::uint32_t kPairs = 16;

inline void check_paths(const Topology& topology) {
  const auto gpus = std::min(static_cast<std::uint32_t>(topology.gpus().size()), kPairs);
  const auto nics = std::min(static_cast<std::uint32_t>(topology.nics().size()), kPairs);
  for (std::uint32_t a = 0; a < gpus; ++a) {
    const NodeRef gpu{NodeKind::gpu, a};
    const NearestNics nearest = nearest_nics(topology, a);
    XYLEM_CHECK(nearest.nics.empty() == topology.nics().empty(), a);
    for (std::uint32_t b = 0; b < gpus; ++b) {
      const NodeRef other{NodeKind::gpu, b};
      XYLEM_CHECK(path(topology, gpu, other) == path(topology, other, gpu), a, b);
    }
    for (std::uint32_t b = 0; b < nics; ++b) {
      const NodeRef nic{NodeKind::nic, b};
      const Path there = path(topology, gpu, nic);
      XYLEM_CHECK(there == path(topology, nic, gpu), a, b);
      XYLEM_CHECK(!there.bandwidth || there.bandwidth->value > 0, a, b);
    }
  }
}

/// Ends the process if the property does not hold. Returns true if `read` contains a topology.
inline bool check_reading(const Result<Topology>& read) {
  if (!read) {
    const auto message = read.status().message();
    XYLEM_CHECK(message.starts_with("input:"), message);
    XYLEM_CHECK(message.find('\n') == std::string_view::npos, message);
    return false;
  }
  const std::string json = to_json(*read);
  const auto back = read_json(json, "json");
  XYLEM_CHECK(back.is_ok(), back.status().message());
  XYLEM_CHECK(*back == *read, json);
  XYLEM_CHECK(fingerprint(*back) == fingerprint(*read), json);
  XYLEM_CHECK(!to_tree(*read).empty(), json);
  // The matrix has a cell for each pair of devices, so it is not written for large machines.
  constexpr std::size_t kManyDevices = 300;
  if (read->gpus().size() + read->nics().size() < kManyDevices) {
    XYLEM_CHECK(!to_matrix(*read).empty(), json);
  }
  XYLEM_CHECK(to_svg(*read).ends_with("</svg>\n"), json);
  check_paths(*read);
  return true;
}

}  // namespace xylem::topology::test
