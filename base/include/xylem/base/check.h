// SPDX-License-Identifier: Apache-2.0
//
// XYLEM_CHECK: a broken invariant is a bug in Xylem. The check prints the condition and the values,
// and ends the process.
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

/// Aborts with the condition and the values if `condition` is false. It is never used for bad
/// input.
#define XYLEM_CHECK(condition, ...)                                          \
  do {                                                                       \
    if (!(condition)) [[unlikely]] {                                         \
      ::xylem::detail::check_failed(#condition, __FILE__, __LINE__,          \
                                    ::xylem::detail::describe(__VA_ARGS__)); \
    }                                                                        \
  } while (false)
