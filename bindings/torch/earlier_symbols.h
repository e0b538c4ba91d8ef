// SPDX-License-Identifier: Apache-2.0
//
// Included by every source of a wheel. libstdc++ of GCC 12 has two versions of
// condition_variable::wait(). The linker would select the newer one, which older systems lack. This
// directive selects the older one. It does the same, except that a thread that waits in it cannot
// be cancelled (pthread_cancel).
__asm__(
    ".symver _ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE, "
    "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE@GLIBCXX_3.4.11");
