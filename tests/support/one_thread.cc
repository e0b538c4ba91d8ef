// SPDX-License-Identifier: Apache-2.0
//
// Part of every unit and model test that does not say THREADS in tests/CMakeLists.txt. Such tests
// do not run under the thread sanitizer, so one that starts a thread ends here.
#include <pthread.h>

#include <cstdio>
#include <cstdlib>

// The program's definition comes before that of the C library, also for std::thread.
extern "C" [[gnu::visibility("default")]] int pthread_create(pthread_t* /*thread*/,
                                                             const pthread_attr_t* /*attributes*/,
                                                             void* (* /*start*/)(void*),
                                                             void* /*argument*/) noexcept {
  std::fputs("a thread was started: this test has to say THREADS in tests/CMakeLists.txt\n",
             stderr);
  std::abort();
}
