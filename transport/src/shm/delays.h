// SPDX-License-Identifier: Apache-2.0
//
// delay() marks each load or store that races with the other end of a channel. A test
// (shm_delays_test) compiles this folder again with XYLEM_SHM_DELAYS; its delay() waits for times
// drawn from a seed. In normal builds delay() is empty.
#pragma once

namespace xylem::transport::shm {

#ifdef XYLEM_SHM_DELAYS
void delay() noexcept;  ///< Defined by the test.
#else
inline void delay() noexcept {}
#endif

}  // namespace xylem::transport::shm
