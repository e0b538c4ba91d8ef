// SPDX-License-Identifier: Apache-2.0
//
// Reports when a thread acquires and releases the progress token, when it plans a call, and when it
// begins and ends the preparation of a planned call. One test (planning_test) compiles a second
// copy of the runtime sources that call this, with XYLEM_TOKEN_TRACE. It shows that no thread plans
// while it holds the token, and how long the token is held to prepare calls. In the library this
// function does nothing.
#pragma once

#include <cstdint>

namespace xylem::runtime {

enum class TokenEvent : std::uint8_t { taken, released, planned, prepares, prepared };

#ifdef XYLEM_TOKEN_TRACE
void trace_token(TokenEvent event) noexcept;  ///< Defined by the test.
#else
inline void trace_token(TokenEvent /*event*/) noexcept {}
#endif

}  // namespace xylem::runtime
