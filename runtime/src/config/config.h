// SPDX-License-Identifier: Apache-2.0
//
// Config: every setting of Xylem, and how the settings are loaded from the defaults, the
// environment and the application. Only config_environment.cc reads the environment.
#pragma once

#include "xylem/base/log.h"
#include "xylem/base/quantity.h"
#include "xylem/base/status.h"
#include "xylem/runtime/options.h"
#include "xylem/transport/connections.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace xylem::runtime {

/// Environment variables by name. A value, so that launchers and tests can pass their own.
using Environment = std::map<std::string, std::string, std::less<>>;
/// All variables of the process's environment. Nothing else in Xylem reads `environ`.
Environment process_environment();

enum class WaitMode : std::uint8_t {
  automatic,  ///< Spins, then yields, then sleeps. Does not spin if the host has fewer cores than
              ///< ranks.
  spin,
  yield,
  sleep,
};

/// What the transport between ranks must be; otherwise the job fails at its start.
enum class Requirement : std::uint8_t {
  none,
  shm,   ///< Shared memory between all ranks.
  tcp,   ///< TCP between ranks on different hosts.
  rdma,  ///< RDMA between ranks on different hosts.
};

/// A value for Config::pull_from that no message size reaches, so that no receiver copies messages
/// directly out of a sender's process.
inline constexpr Bytes kNeverPull{~std::uint64_t{0}};

/// Every setting, with its default. All ranks must have the same value in fields marked `agreed`.
struct Config {
  std::optional<std::uint32_t> rank, size;
  std::string rendezvous, job, secret;
  std::chrono::nanoseconds start_timeout{std::chrono::seconds(60)};
  std::chrono::nanoseconds timeout{std::chrono::minutes(30)};
  std::chrono::nanoseconds stall_report{std::chrono::seconds(10)};
  std::string transport = "auto";
  Requirement require = Requirement::none;                         // agreed
  transport::Protection protection = transport::Protection::auth;  // agreed
  std::string algorithm;                                           // agreed
  std::string schedules;  ///< The path of a file with schedules.
  std::string interfaces, devices, machine;
  Bytes slice{256 * 1024};         // agreed
  Bytes device_slice{4 << 20};     // agreed
  std::uint32_t window = 8;        // slices in flight per (peer, channel)
  std::optional<Bytes> pull_from;  // agreed; if not set, measured at start
  Bytes shared_memory{0};          // agreed; 0: as much as the ranks of a host need
  WaitMode wait = WaitMode::automatic;
  bool progress_thread = true;
  std::optional<Memory> device;    ///< Options::device
  bool has_same_memory = false;    ///< Options::has_same_memory
  std::string tuning = "measure";  ///< "measure", "off", or the path of a cache file.
  LogOptions log;
};

/// One row of the configuration table (config_table.h), as a user sees it.
struct ConfigRow {
  std::string name;   ///< XYLEM_…
  std::string value;  ///< As text, such as "256 KiB"; a secret is shown as "(set)".
  std::string default_value;
  std::string origin;  ///< "default", "environment", "program".
  std::string unit;    ///< "", "bytes", "duration", "ranks", …
  std::string sentence;
  bool agreed = false;
};

struct LoadedConfig {
  Config config;
  std::vector<ConfigRow> rows;
};

/// Loads the settings. `options` take precedence over `environment`, which takes precedence over
/// the defaults. Fails with invalid_argument for an unknown XYLEM_ variable (naming the nearest
/// known name) or a value out of its range (naming the value, the rule and an example).
Result<LoadedConfig> load_config(const Environment& environment, const Options& options);

/// The agreed settings as "name=value" lines. The texts of two ranks are equal if the ranks agree;
/// otherwise the first line that differs names the variable.
std::string agreed_settings(const LoadedConfig& loaded);

}  // namespace xylem::runtime
