// SPDX-License-Identifier: Apache-2.0
//
// The matrix of `nvidia-smi topo -m` as data, either for writing it or as read from nvidia-smi's
// output.
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
    std::string name;  ///< "GPU0"; for a NIC its own name, or "NIC3" if its name is unknown.
    std::vector<std::string>
        cells;  ///< One for each row of `rows`, in order; empty or missing if nothing is known.
    std::string cpus, numa;  ///< Affinities of a GPU; "N/A" where unknown.
  };
  std::vector<Row> rows;
  bool has_nics = false;          ///< True if the NICs have names.
  bool shows_nvlink = false;      ///< True if some cell shows an NVLink.
  bool node_assumed = false;      ///< True if some NODE cell may really be SYS.
  bool phb_assumed = false;       ///< True if some PHB cell may really be NODE.
  bool nvswitch_assumed = false;  ///< True if it is assumed that the NVSwitches are one fabric.
};

/// The matrix of a topology: first GPUs, then fabric NICs. With `pci_only`, it is like `nvidia-smi
/// topo -mp`.
Matrix matrix_of(const Topology& topology, bool pci_only = false);

/// Reads the output of nvidia-smi.
Result<Matrix> read_matrix(std::string_view text, std::string_view source);

}  // namespace xylem::topology
