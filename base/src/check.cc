// SPDX-License-Identifier: Apache-2.0
//
// Ends a process with a broken invariant: writes one line to standard error, then aborts.
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
  // A failed write is ignored, since the process ends in any case.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
  std::abort();
}

}  // namespace xylem::detail
