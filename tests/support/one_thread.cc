// SPDX-License-Identifier: Apache-2.0
//
// Linked into every unit and model test that is not marked THREADS in tests/CMakeLists.txt. Tests
// without that mark do not run under the thread sanitizer, so none of them may start a thread: this
// definition of pthread_create ends the process.
#include <pthread.h>

#include <cstdio>
#include <cstdlib>

// The linker prefers this definition to the C library's, also for calls from std::thread.
extern "C" [[gnu::visibility("default")]] int pthread_create(pthread_t* /*thread*/,
                                                             const pthread_attr_t* /*attributes*/,
                                                             void* (* /*start*/)(void*),
                                                             void* /*argument*/) noexcept {
  std::fputs("a thread was started: this test has to say THREADS in tests/CMakeLists.txt\n",
             stderr);
  std::abort();
}
