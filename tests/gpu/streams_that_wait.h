// SPDX-License-Identifier: Apache-2.0
//
// Questions about what a stream that waits by a memory operation stops, besides its own work. Each
// answer is one line of JSON. Each function returns 0.
#pragma once

namespace xylem::test::gpu {

/// A call of one thread waits for such a stream. Do the calls of another thread go on, and what
/// they give to another stream?
int ask_about_threads();
/// Which streams stand still behind such a stream, since they share its hardware queue?
int ask_about_queues();
/// Does work that stands behind the wait stop work of other streams?
int ask_about_work_behind();
/// How many operations does the stream take before a call waits?
int ask_about_room();

}  // namespace xylem::test::gpu
