// SPDX-License-Identifier: Apache-2.0
//
// trace_token(): reports to a test when a thread acquires and releases the progress token, when it
// plans a call, and when it begins and ends the preparation of a planned call. planning_test
// compiles a second copy of the runtime sources that call trace_token(), with XYLEM_TOKEN_TRACE.
// The test shows that no thread plans while it holds the token, and how long the token is held to
// prepare calls. In the library, trace_token() does nothing.
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
