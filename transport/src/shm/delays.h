// SPDX-License-Identifier: Apache-2.0
//
// Where a load or store meets the other side of a channel. A test (shm_delays_test) builds this
// folder once more with XYLEM_SHM_DELAYS and waits at each such place for as long as a seed says;
// otherwise there is nothing here.
#pragma once

namespace xylem::transport::shm {

#ifdef XYLEM_SHM_DELAYS
void delay() noexcept;  ///< The test's.
#else
inline void delay() noexcept {}
#endif

}  // namespace xylem::transport::shm
