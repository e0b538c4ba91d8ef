// SPDX-License-Identifier: Apache-2.0
//
// Reports when a thread takes the progress token and gives it up, when it plans a call, and when it
// prepares and starts a planned call. A test (planning_test) builds those who do this once more
// with XYLEM_TOKEN_TRACE, to show that planning never holds the token, and how long preparing does.
// Otherwise these functions do nothing.
#pragma once

#include <cstdint>

namespace xylem::runtime {

enum class TokenEvent : std::uint8_t { taken, given_up, planned, prepares, prepared };

#ifdef XYLEM_TOKEN_TRACE
void trace_token(TokenEvent event) noexcept;  ///< Defined by the test.
#else
inline void trace_token(TokenEvent /*event*/) noexcept {}
#endif

}  // namespace xylem::runtime
