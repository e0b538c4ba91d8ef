/* SPDX-License-Identifier: Apache-2.0
 *
 * ucp_yield: a library to preload into MPICH's ranks when there are more of them than cores. MPICH
 * waits by calling ucp_worker_progress() in a loop, and has no option that makes it yield its core.
 * This library replaces the function: it calls that of UCX, and yields after a number of calls that
 * made no progress.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>

enum { kIdleCalls = 32 };

unsigned ucp_worker_progress(void* worker);

unsigned ucp_worker_progress(void* worker) {
  static unsigned (*progress)(void*);
  static unsigned idle;
  if (!progress) *(void**)&progress = dlsym(RTLD_NEXT, "ucp_worker_progress");
  const unsigned done = progress(worker);
  idle = done ? 0 : idle + 1;
  if (idle >= kIdleCalls) {
    sched_yield();
    idle = 0;
  }
  return done;
}
