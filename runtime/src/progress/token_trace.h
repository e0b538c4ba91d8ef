// SPDX-License-Identifier: Apache-2.0
//
// Reports when a thread takes the progress token and gives it up, when it plans a call, and when it
// begins and ends to prepare a planned call. One test (planning_test) compiles the runtime sources
// that call this again with XYLEM_TOKEN_TRACE. It shows that no thread plans while it holds the
// token, and for how long calls are prepared with it. In the library this function does nothing.
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
