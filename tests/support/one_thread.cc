// SPDX-License-Identifier: Apache-2.0
//
// Linked into every unit and model test that is not marked THREADS in tests/CMakeLists.txt. The
// thread sanitizer does not run these tests, so they must not start threads. If such a test calls
// pthread_create, the definition below ends the process.
#include <pthread.h>

#include <cstdio>
#include <cstdlib>

// The linker prefers this definition to that of the C library, also for calls from std::thread.
extern "C" [[gnu::visibility("default")]] int pthread_create(pthread_t* /*thread*/,
                                                             const pthread_attr_t* /*attributes*/,
                                                             void* (* /*start*/)(void*),
                                                             void* /*argument*/) noexcept {
  std::fputs("a thread was started: this test has to say THREADS in tests/CMakeLists.txt\n",
             stderr);
  std::abort();
}
