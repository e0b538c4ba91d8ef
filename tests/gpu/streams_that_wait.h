// SPDX-License-Identifier: Apache-2.0
//
// Answers questions about a stream that waits by a memory operation: does it block other work, too?
// Each answer is one line of JSON. Each function returns 0.
#pragma once

namespace xylem::test::gpu {

/// While a call of one thread blocks until a waiting stream has finished: do calls of another
/// thread return, and does work continue that this thread enqueues on another stream?
int ask_about_threads();
/// Which streams does a waiting stream block, since they share its hardware queue?
int ask_about_queues();
/// Does work that is enqueued behind the wait block other streams?
int ask_about_work_behind();
/// How many operations can be enqueued on a waiting stream before a call blocks?
int ask_about_room();

}  // namespace xylem::test::gpu
