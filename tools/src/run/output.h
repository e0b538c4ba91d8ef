// SPDX-License-Identifier: Apache-2.0
//
// The path of the ranks' output. An OutputStream reads one stream of a rank and splits it into
// lines. A Sink writes lines to a standard stream of the launcher. Neither class ever blocks. So if
// the reader of the launcher's output stops reading (a pager, Ctrl-S), the ranks slow down, but the
// launcher still reacts to Ctrl-C.
#pragma once

#include "run/line_writer.h"
#include "xylem/base/unique_fd.h"

#include <cstddef>
#include <string>
#include <string_view>

namespace xylem::tools {

/// Stores lines, and writes them to a descriptor. Other processes may use the same open file, so
/// its flags (O_NONBLOCK) are not changed.
class Sink {
 public:
  explicit Sink(int fd) noexcept : fd_(fd) {}

  void append(std::string_view lines) { backlog_ += lines; }
  /// Writes as much as is possible without blocking.
  void flush();

  int fd() const noexcept { return fd_; }
  bool empty() const noexcept { return backlog_.empty(); }
  /// Whether the streams must not add lines until stored lines have been written.
  bool full() const noexcept;
  /// The errno of the write that failed, 0 if none did. After a failure all lines are dropped.
  int error() const noexcept { return error_; }

 private:
  int fd_;
  int error_ = 0;
  std::string backlog_;
};

class OutputStream {
 public:
  OutputStream() : lines_("") {}
  /// `source` is a non-blocking end of a pipe. `sink` must outlive the stream.
  OutputStream(UniqueFd source, Sink& sink, std::string prefix)
      : source_(std::move(source)), sink_(&sink), lines_(std::move(prefix)) {}

  bool open() const noexcept { return static_cast<bool>(source_); }
  int fd() const noexcept { return source_.get(); }
  Sink& sink() const noexcept { return *sink_; }
  /// Reads what has arrived, up to a limit that is fair to other streams. Reads nothing while the
  /// sink is full.
  void forward();
  /// Reads everything that has arrived, including a last line without a line break, and closes the
  /// stream.
  void finish();

 private:
  /// Reads once; false if there is nothing to read now.
  bool read_some();

  UniqueFd source_;
  Sink* sink_ = nullptr;
  LineWriter lines_;
};

}  // namespace xylem::tools
