// SPDX-License-Identifier: Apache-2.0
//
// The end of a process whose invariant broke: one line on standard error, then abort.
#include "xylem/base/check.h"

#include <fmt/format.h>

#include <unistd.h>

#include <cstdlib>

namespace xylem::detail {

void check_failed(const char* condition,
                  const char* file,
                  int line,
                  const std::string& values) noexcept {
  fmt::memory_buffer text;
  fmt::format_to(std::back_inserter(text), "xylem: bug at {}:{}: check failed: {}{}{}\n", file,
                 line, condition, values.empty() ? "" : " with", values);
  // Nothing can be done about a failed write: the process ends either way.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
  std::abort();
}

}  // namespace xylem::detail
