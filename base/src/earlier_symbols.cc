// SPDX-License-Identifier: Apache-2.0
//
// Part of a wheel only. libstdc++ of GCC 12 has two versions of condition_variable::wait(). The
// linker would select the newer one, which older systems lack. With its option --wrap it replaces
// all calls by calls of the function below, which calls the older one. That does the same, except
// that a thread that waits in it cannot be cancelled (pthread_cancel). The parameters are
// references to the condition variable and to the lock.

__asm__(
    ".symver earlier_wait, "
    "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE@GLIBCXX_3.4.11");

extern "C" {
void earlier_wait(void* condition, void* lock);
// NOLINTNEXTLINE(*-reserved-identifier,*-identifier-naming): the linker defines the name.
void __wrap__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(void* condition, void* lock) {
  earlier_wait(condition, lock);
}
}
