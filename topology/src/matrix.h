// SPDX-License-Identifier: Apache-2.0
//
// The matrix of `nvidia-smi topo -m` as data: what one writes, and what another printed.
#pragma once

#include "xylem/base/status.h"
#include "xylem/topology/path.h"
#include "xylem/topology/topology.h"

#include <string>
#include <string_view>
#include <vector>

namespace xylem::topology {

inline constexpr std::string_view kCpuAffinity = "CPU Affinity";
inline constexpr std::string_view kNumaAffinity = "NUMA Affinity";

struct Matrix {
  struct Row {
    std::string name;  ///< "GPU0"; a NIC's own name, or "NIC3" if nobody tells it.
    std::vector<std::string>
        cells;               ///< By place in `rows`; empty or missing where nothing is said.
    std::string cpus, numa;  ///< Affinities of a GPU; "N/A" where unknown.
  };
  std::vector<Row> rows;
  bool has_nics = false;          ///< NICs are told by name.
  bool shows_nvlink = false;      ///< Some cell is an NVLink's.
  bool node_assumed = false;      ///< Some NODE may be SYS in truth,
  bool phb_assumed = false;       ///< and some PHB may be NODE.
  bool nvswitch_assumed = false;  ///< NVSwitches are taken for one fabric.
};

/// GPUs, then fabric NICs. With `pci_only`, as `nvidia-smi topo -mp`.
Matrix matrix_of(const Topology& topology, bool pci_only = false);

/// Reads what nvidia-smi printed.
Result<Matrix> read_matrix(std::string_view text, std::string_view source);

}  // namespace xylem::topology
