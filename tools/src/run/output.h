// SPDX-License-Identifier: Apache-2.0
//
// The way of what ranks say: OutputStream reads one stream of a rank and makes lines of it, Sink
// writes lines to one of our streams. Neither ever blocks, so a reader that has stopped reading us
// (a pager, Ctrl-S) slows the ranks down but never keeps the launcher from hearing Ctrl-C.
#pragma once

#include "run/line_writer.h"
#include "xylem/base/unique_fd.h"

#include <cstddef>
#include <string>
#include <string_view>

namespace xylem::tools {

/// Lines on their way to a descriptor that others hold too, so its flags stay as they are.
class Sink {
 public:
  explicit Sink(int fd) noexcept : fd_(fd) {}

  void append(std::string_view lines) { backlog_ += lines; }
  /// Writes what can be written at once.
  void flush();

  int fd() const noexcept { return fd_; }
  bool empty() const noexcept { return backlog_.empty(); }
  /// Whether streams should stop feeding it until it has written.
  bool full() const noexcept;
  /// Nobody reads any more; from then on it swallows everything.
  bool broken() const noexcept { return broken_; }

 private:
  int fd_;
  bool broken_ = false;
  std::string backlog_;
};

class OutputStream {
 public:
  OutputStream() : lines_("") {}
  /// `source` is a non-blocking end of a pipe. `sink` outlives the stream.
  OutputStream(UniqueFd source, Sink& sink, std::string prefix)
      : source_(std::move(source)), sink_(&sink), lines_(std::move(prefix)) {}

  bool open() const noexcept { return static_cast<bool>(source_); }
  int fd() const noexcept { return source_.get(); }
  Sink& sink() const noexcept { return *sink_; }
  /// Takes what has arrived, at most a fair share, unless the sink is full.
  void forward();
  /// Takes all that has arrived, also a last line that lacks its line break, and closes.
  void finish();

 private:
  /// Reads once; false if there is nothing now.
  bool read_some();

  UniqueFd source_;
  Sink* sink_ = nullptr;
  LineWriter lines_;
};

}  // namespace xylem::tools
