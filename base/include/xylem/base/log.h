// SPDX-License-Identifier: Apache-2.0
//
// Logging. A Logger is passed by value; there is no global logger. Each line has time, level, rank,
// host and communicator. Callers format a message only if enabled() is true. At level `debug`, the
// number of lines grows with the number of objects; at `trace`, with the number of messages.
#pragma once

#include "xylem/base/api.h"
#include "xylem/base/status.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace xylem {

enum class LogLevel : std::uint8_t { off, error, warn, info, debug, trace };

/// The name of the level: "off", "error", …
XYLEM_API std::string_view name(LogLevel level) noexcept;

/// The parsed value of XYLEM_LOG: `level[,file=path]`. In the path, %r is the rank, %h the host and
/// %p the process id.
struct LogOptions {
  LogLevel level = LogLevel::warn;
  std::string file;  ///< Empty means standard error.
};
XYLEM_API Result<LogOptions> parse_log_options(std::string_view text);

/// Identifies the origin of a line. `communicator` is empty for lines that concern no communicator.
struct LogIdentity {
  std::string host;
  std::int64_t rank = -1;  ///< World rank, or -1 before it is known.
  std::string communicator;
};

/// Writes lines to a sink: a file or standard error. Copies of a logger share the sink.
/// Thread-safe: each line is one write(2). If a file accepts no data (a FIFO that is not read, a
/// full disk), the logger does not block, but drops the line. Its next successful write begins with
/// a line that states how many lines were dropped.
class XYLEM_API Logger {
 public:
  /// A logger that drops every message.
  Logger() noexcept = default;
  /// Opens the sink. Fails if the file cannot be opened for appending, or is a FIFO without a
  /// reader.
  static Result<Logger> open(const LogOptions& options, LogIdentity identity);
  /// A logger with the same sink and another identity.
  Logger as(LogIdentity identity) const;
  const LogIdentity& identity() const noexcept;

  bool enabled(LogLevel level) const noexcept;
  void write(LogLevel level, std::string_view message) const;
  void error(std::string_view message) const { write(LogLevel::error, message); }
  void warn(std::string_view message) const { write(LogLevel::warn, message); }
  void info(std::string_view message) const { write(LogLevel::info, message); }
  void debug(std::string_view message) const { write(LogLevel::debug, message); }

 private:
  struct Sink;
  std::shared_ptr<Sink> sink_;
  std::shared_ptr<const LogIdentity> identity_;
};

}  // namespace xylem
