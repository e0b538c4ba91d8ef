// SPDX-License-Identifier: Apache-2.0
//
// What Xylem would do here and why, for people who look for the cause of something: `xylem info`
// prints it. Nothing here starts a job or waits for other ranks.
#pragma once

#include "xylem/base/api.h"
#include "xylem/base/status.h"

#include <cstdint>
#include <string>
#include <vector>

namespace xylem {

/// One row of the configuration.
struct SettingInfo {
  std::string name;   ///< XYLEM_…
  std::string value;  ///< In its unit; a secret is shown as "(set)".
  std::string default_value;
  std::string origin;  ///< "default", "environment", "program".
  std::string unit;    ///< "bytes", "duration", …; empty for names and lists.
  std::string sentence;
  bool agreed = false;  ///< All ranks of a job must have the same.
};

/// What started this process and the place it has in the job.
struct LauncherInfo {
  std::string name;  ///< "torchrun", "openmpi", "mpich", "slurm", "xylem", "options"; "none" for a
                     ///< job of one.
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
};

/// A network interface that is up, by one of its addresses.
struct InterfaceInfo {
  std::string name;
  std::string address;
  bool chosen = false;  ///< Ranks on other hosts would reach this one here.
};

/// One way of the fabric's library to move bytes.
struct DeviceInfo {
  std::string transport;  ///< "posix", "tcp", "rc_verbs".
  std::string device;     ///< "memory", "eth0", "mlx5_0:1".
};

/// What the ranks of one host share there, if there are so many, in one job.
struct SharedMemoryInfo {
  std::uint32_t ranks = 0;
  std::uint64_t rank_bytes = 0;  ///< Of each of them, whatever its communicators.
  std::uint64_t slot_bytes = 0;  ///< Longer messages come in parts.
  std::string shortage;  ///< Not empty: why XYLEM_SHARED_MEMORY does not serve them, and they use
                         ///< the network.
};

/// One algorithm.
struct AlgorithmInfo {
  std::string collective;
  std::string name;
  std::string summary;  ///< One sentence.
};

struct Info {
  std::string version;
  std::string ucx_version;
  LauncherInfo launcher;
  std::vector<SettingInfo> settings;
  std::vector<std::string> ucx_variables;  ///< "UCX_TLS=tcp": what else changes how bytes travel.
  std::vector<InterfaceInfo> interfaces;
  std::string interface_reason;                 ///< Why the chosen one, or why none.
  std::vector<SharedMemoryInfo> shared_memory;  ///< For 2, 8, 64 ranks, and those of this job.
  std::vector<DeviceInfo> devices;
  std::vector<AlgorithmInfo> algorithms;
  std::vector<std::string>
      kernel_targets;  ///< Instruction sets of the reduction kernels, the one in use first.
};

/// Fails as Runtime::create() would for a configuration that is wrong.
XYLEM_API Result<Info> info();

/// The launcher alone, which is cheap: it says whether this process is one of many already.
XYLEM_API Result<LauncherInfo> launcher_info();

}  // namespace xylem
