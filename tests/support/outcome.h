// SPDX-License-Identifier: Apache-2.0
//
// Checks and matchers for Status and Result. They are in the namespace of Status and Result, so
// that every test finds them.
#pragma once

#include "xylem/base/status.h"

#include <gmock/gmock.h>

#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace xylem {

/// Ends the test with the message of `status`, unless `status` is OK. GoogleTest reports the
/// exception.
inline void must(const Status& status) {
  if (!status) throw std::runtime_error(status.to_string());
}

/// Returns the value of `result`. If it has none, ends the test with the message of its error.
template <typename T>
T value_of(Result<T> result) {
  must(result.status());
  return *std::move(result);
}

/// Calls `body` on a thread that a test has started. An exception is reported as a failure of the
/// test.
template <typename Body>
void report_exceptions(const Body& body) try {
  body();
} catch (const std::exception& thrown) {
  ADD_FAILURE() << thrown.what();
}

/// Matches a Status or a Result that failed with a message that contains `text`.
MATCHER_P(fails_with, text, "fails with a message that contains \"" + std::string(text) + "\"") {
  const Status status = detail::status_of(arg);
  *result_listener << status.to_string();
  return !status && status.message().find(text) != std::string_view::npos;
}

/// Matches a Status or a Result that names `rank` as the culprit.
MATCHER_P(blames, rank, "blames rank " + std::to_string(rank)) {
  const Status status = detail::status_of(arg);
  *result_listener << status.to_string();
  return status.peer() == rank;
}

MATCHER_P(has_code, code, "has the code " + std::string(name(code))) {
  return detail::status_of(arg).code() == code;
}

/// Matches a Status or a Result that failed with `code`, and whose message contains all `texts`.
template <typename... Texts>
auto fails_as(Code code, Texts... texts) {
  return testing::AllOf(has_code(code), fails_with(texts)...);
}

}  // namespace xylem
