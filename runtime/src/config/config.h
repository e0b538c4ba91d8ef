// SPDX-License-Identifier: Apache-2.0
//
// The one configuration table: name, unit, default, sentence and origin of every value. The
// environment is read in config.cc and nowhere else.
#pragma once

#include "xylem/base/log.h"
#include "xylem/base/quantity.h"
#include "xylem/base/status.h"
#include "xylem/runtime/options.h"
#include "xylem/transport/tcp.h"

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

/// Variables by name, as a value: launchers and tests pass their own.
using Environment = std::map<std::string, std::string, std::less<>>;
/// The process's environment: every variable. The only reader of `environ`.
Environment process_environment();

enum class WaitMode : std::uint8_t {
  automatic,  ///< spin while there is a core for each local rank, then yield, then sleep; without
              ///< one, yield, then sleep
  spin,
  yield,
  sleep,
};

/// Config::pull_from that no message reaches.
inline constexpr Bytes kNeverPull{~std::uint64_t{0}};

/// Every setting, with the defaults of the table. Fields that all ranks must agree on are marked
/// `agreed` there.
struct Config {
  std::optional<std::uint32_t> rank, size;
  std::string rendezvous, job, secret;
  std::chrono::nanoseconds start_timeout{std::chrono::seconds(60)};
  std::chrono::nanoseconds timeout{std::chrono::minutes(30)};
  std::chrono::nanoseconds stall_report{std::chrono::seconds(10)};
  std::string transport = "auto";
  transport::Protection protection = transport::Protection::auth;  // agreed
  std::string algorithm;                                           // agreed
  std::string interfaces, devices;
  Bytes slice{256 * 1024};         // agreed
  std::uint32_t window = 8;        // slices in flight per (peer, channel)
  std::optional<Bytes> pull_from;  // agreed; without: as measured
  Bytes shared_memory{0};          // agreed; 0: as much as serves the ranks of a host
  WaitMode wait = WaitMode::automatic;
  bool progress_thread = true;
  std::string tuning = "measure";  ///< "measure", "off", or the path of a cache file.
  LogOptions log;
};

/// One row of the table as a user sees it.
struct ConfigRow {
  std::string name;   ///< XYLEM_…
  std::string value;  ///< In its unit; a secret is shown as "(set)".
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

/// Defaults, then `environment`, then `options`. Fails with invalid_argument for an unknown XYLEM_
/// variable (with the nearest known name) or a value out of its range (naming value, rule and an
/// example).
Result<LoadedConfig> load_config(const Environment& environment, const Options& options);

/// Text of the agreed settings, alike on ranks that agree; "name=value" lines, so a difference can
/// name the variable.
std::string agreed_settings(const LoadedConfig& loaded);

}  // namespace xylem::runtime
