// SPDX-License-Identifier: Apache-2.0
//
// XYLEM_CHECK tests an invariant. A broken invariant is a bug in Xylem: the check prints the
// condition and the values, and aborts the process.
#pragma once

#include "xylem/base/api.h"

#include <sstream>
#include <string>

namespace xylem::detail {

[[noreturn]] XYLEM_API void check_failed(const char* condition,
                                         const char* file,
                                         int line,
                                         const std::string& values) noexcept;

template <typename... Values>
std::string describe(const Values&... values) {
  std::ostringstream out;
  ((out << ' ' << values), ...);
  return out.str();
}

}  // namespace xylem::detail

/// If `condition` is false, prints it with the values and aborts the process. For bugs in Xylem
/// only: bad input is reported as a Status.
#define XYLEM_CHECK(condition, ...)                                          \
  do {                                                                       \
    if (!(condition)) [[unlikely]] {                                         \
      ::xylem::detail::check_failed(#condition, __FILE__, __LINE__,          \
                                    ::xylem::detail::describe(__VA_ARGS__)); \
    }                                                                        \
  } while (false)
