// SPDX-License-Identifier: Apache-2.0
//
// The format of log lines, and how they are written:
//
//   2026-01-31T12:34:56.123456Z warn  rank 3 host-a world.dp: message
//
// A line is formatted completely and then written by one call to a descriptor opened for appending.
// So lines of several threads, or of several processes that share a file, are never mixed.
#include "xylem/base/log.h"

#include "xylem/base/file.h"
#include "xylem/base/unique_fd.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <optional>
#include <system_error>

namespace xylem {
namespace {

constexpr std::array kLevels = {LogLevel::off,  LogLevel::error, LogLevel::warn,
                                LogLevel::info, LogLevel::debug, LogLevel::trace};
constexpr std::string_view kUnknownRank = "unknown";

Result<LogLevel> parse_level(std::string_view text) {
  for (const LogLevel level : kLevels) {
    if (text == name(level)) return level;
  }
  return failure(
      Code::invalid_argument,
      fmt::format("log level \"{}\" is unknown: use off, error, warn, info, debug or trace", text));
}

std::string rank_text(std::int64_t rank) {
  return rank < 0 ? std::string(kUnknownRank) : std::to_string(rank);
}

/// The replacement for `%` followed by `letter` in a path; nullopt if the letter has no meaning.
std::optional<std::string> expand_letter(char letter, const LogIdentity& identity) {
  switch (letter) {
    case 'r': return rank_text(identity.rank);
    case 'h': return identity.host;
    case 'p': return std::to_string(::getpid());
    case '%': return "%";
    default: return std::nullopt;
  }
}

Result<std::string> expand_path(std::string_view pattern, const LogIdentity& identity) {
  std::string path;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%') {
      path += pattern[i];
      continue;
    }
    ++i;
    const auto text = i < pattern.size() ? expand_letter(pattern[i], identity) : std::nullopt;
    if (!text) {
      return failure(
          Code::invalid_argument,
          fmt::format(
              "log file \"{}\" has a % that is not %r (rank), %h (host), %p (process) or %%",
              pattern));
    }
    path += *text;
  }
  return path;
}

/// The complete line. It has exactly one line break, at its end; line breaks in the message are
/// escaped.
std::string format_line(LogLevel level, const LogIdentity& identity, std::string_view message) {
  using std::chrono::microseconds;
  const auto now = std::chrono::floor<microseconds>(std::chrono::system_clock::now());
  const auto second = std::chrono::floor<std::chrono::seconds>(now);
  std::string line = fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06}Z {:<5} rank {} {}",
                                 fmt::gmtime(std::chrono::system_clock::to_time_t(second)),
                                 (now - second).count(), name(level), rank_text(identity.rank),
                                 identity.host.empty() ? "-" : identity.host);
  if (!identity.communicator.empty()) {
    line += ' ';
    line += identity.communicator;
  }
  line += ": ";
  for (const char c : message) {
    if (c == '\n') {
      line += "\\n";
    } else {
      line += c;
    }
  }
  line += '\n';
  return line;
}

/// Writes the whole text. If an error other than EINTR occurs, drops the rest and returns false.
bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace

struct Logger::Sink {
  Sink(LogLevel most, UniqueFd named) noexcept : level(most), file(std::move(named)) {}

  const LogLevel level;
  const UniqueFd file;  ///< Empty for standard error, which a logger must not close.
  std::atomic<std::uint64_t> dropped = 0;  ///< Number of lines dropped since the last successful
                                           ///< write.
};

std::string_view name(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::off: return "off";
    case LogLevel::error: return "error";
    case LogLevel::warn: return "warn";
    case LogLevel::info: return "info";
    case LogLevel::debug: return "debug";
    case LogLevel::trace: return "trace";
  }
  return "unknown";
}

Result<LogOptions> parse_log_options(std::string_view text) {
  constexpr std::string_view kFile = "file=";
  LogOptions options;
  const auto comma = text.find(',');
  XYLEM_TRY(options.level, parse_level(text.substr(0, comma)));
  if (comma == std::string_view::npos) return options;

  const auto rest = text.substr(comma + 1);
  if (!rest.starts_with(kFile) || rest.size() == kFile.size()) {
    return failure(Code::invalid_argument,
                   fmt::format("log option \"{}\" is unknown: write level,file=path", rest));
  }
  options.file = rest.substr(kFile.size());
  XYLEM_TRY(expand_path(options.file, LogIdentity{}));
  return options;
}

Result<Logger> Logger::open(const LogOptions& options, LogIdentity identity) {
  UniqueFd file;
  if (!options.file.empty()) {
    XYLEM_TRY(const std::string path, expand_path(options.file, identity));
    constexpr mode_t kReadableByAll = 0644;
    constexpr std::chrono::seconds kLease{1};
    file =
        open_promptly(path, O_WRONLY | O_CREAT | O_APPEND, Deadline::after(kLease), kReadableByAll);
    if (const int error = errno; !file) {
      return failure(Code::invalid_argument,
                     fmt::format("cannot open log file \"{}\" for appending: {}{}", path,
                                 std::generic_category().message(error),
                                 error == ENXIO ? "; start the reader of a FIFO first" : ""));
    }
  }
  Logger logger;
  logger.sink_ = std::make_shared<Sink>(options.level, std::move(file));
  return logger.as(std::move(identity));
}

Logger Logger::as(LogIdentity identity) const {
  Logger other(*this);
  other.identity_ = std::make_shared<const LogIdentity>(std::move(identity));
  return other;
}

const LogIdentity& Logger::identity() const noexcept {
  // Never destroyed, since destructors of static objects may log.
  // NOLINTNEXTLINE(cppcoreguidelines-owning-memory,bugprone-unhandled-exception-at-new)
  static const auto& nobody = *new LogIdentity;
  return identity_ ? *identity_ : nobody;
}

bool Logger::enabled(LogLevel level) const noexcept {
  return sink_ && level != LogLevel::off && level <= sink_->level;
}

void Logger::write(LogLevel level, std::string_view message) const {
  if (!enabled(level)) return;
  std::string text = format_line(level, identity(), message);
  if (!sink_->file) {
    (void)write_all(STDERR_FILENO, text);
    return;
  }
  const std::uint64_t dropped = sink_->dropped.exchange(0, std::memory_order_relaxed);
  if (dropped > 0) {
    const auto loss = fmt::format("{} lines before this one could not be written", dropped);
    text.insert(0, format_line(LogLevel::warn, identity(), loss));
  }
  const WriteSignalsBlocked blocked;
  if (write_all(sink_->file.get(), text)) return;
  sink_->dropped.fetch_add(dropped + 1, std::memory_order_relaxed);
}

}  // namespace xylem
