// SPDX-License-Identifier: Apache-2.0
//
// Linked into every unit and model test that is not marked THREADS in tests/CMakeLists.txt. Such
// tests do not run under the thread sanitizer, so they must not start threads. This definition of
// pthread_create ends a process that does.
#include <pthread.h>

#include <cstdio>
#include <cstdlib>

// It takes precedence over the definition in the C library, also for calls from std::thread.
extern "C" [[gnu::visibility("default")]] int pthread_create(pthread_t* /*thread*/,
                                                             const pthread_attr_t* /*attributes*/,
                                                             void* (* /*start*/)(void*),
                                                             void* /*argument*/) noexcept {
  std::fputs("a thread was started: this test has to say THREADS in tests/CMakeLists.txt\n",
             stderr);
  std::abort();
}
