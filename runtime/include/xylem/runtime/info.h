// SPDX-License-Identifier: Apache-2.0
//
// What Xylem would do on this machine and why, for people who look for the cause of a problem.
// `xylem info` prints these data. None of the functions starts a job or waits for other ranks.
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
  std::string value;  ///< As text, such as "256 KiB"; a secret is shown as "(set)".
  std::string default_value;
  std::string origin;  ///< "default", "environment", "program".
  std::string unit;    ///< "bytes", "duration", …; empty for names and lists.
  std::string sentence;
  bool agreed = false;  ///< All ranks of a job must have the same value.
};

/// What started this process, and its rank in the job.
struct LauncherInfo {
  std::string name;  ///< "torchrun", "openmpi", "mpich", "slurm", "xylem", "options"; "none" for a
                     ///< job of one rank.
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
};

/// One address of a network interface that is up.
struct InterfaceInfo {
  std::string name;
  std::string address;
  bool chosen = false;  ///< Ranks on other hosts would connect to this rank at this address.
};

/// A transport of UCX and a device that it can use.
struct DeviceInfo {
  std::string transport;  ///< "posix", "tcp", "rc_verbs".
  std::string device;     ///< "memory", "eth0", "mlx5_0:1".
};

/// The shared memory of a job that has `ranks` ranks on one host.
struct SharedMemoryInfo {
  std::uint32_t ranks = 0;
  std::uint64_t rank_bytes = 0;  ///< Shared memory of each rank, however many communicators it has.
  std::uint64_t slot_bytes = 0;  ///< Longer messages are sent in parts of this size.
  /// If XYLEM_SHARED_MEMORY is too small for `ranks` ranks, the reason; these ranks would then use
  /// the network. Empty if it is large enough.
  std::string shortage;
};

/// One algorithm of one collective.
struct AlgorithmInfo {
  std::string collective;
  std::string name;
  std::string summary;  ///< One sentence.
};

struct Info {
  std::string version;
  std::string ucx_version;  ///< Empty if UCX is not installed.
  std::string ucx_missing;  ///< Why UCX cannot be used; empty if it can.
  LauncherInfo launcher;
  std::vector<SettingInfo> settings;
  std::vector<std::string> ucx_variables;  ///< Settings of UCX in the environment, as
                                           ///< "UCX_TLS=tcp". They affect transfers over UCX.
  std::vector<InterfaceInfo> interfaces;
  std::string interface_reason;                 ///< Why an interface is `chosen`, or why none is.
  std::vector<SharedMemoryInfo> shared_memory;  ///< For 2, 8, 64 and `launcher.size` ranks.
  std::vector<DeviceInfo> devices;
  std::vector<AlgorithmInfo> algorithms;
  std::vector<std::string>
      kernel_targets;  ///< Instruction sets of the reduction kernels, the one in use first.
};

/// If the configuration is wrong, fails with the same error as Runtime::create().
XYLEM_API Result<Info> info();

/// Only Info::settings, which takes less time than info().
XYLEM_API Result<std::vector<SettingInfo>> setting_infos();

/// Only Info::launcher, which takes less time than info(). Its `size` exceeds 1 if this process is
/// one of several ranks of a job.
XYLEM_API Result<LauncherInfo> launcher_info();

}  // namespace xylem
