// SPDX-License-Identifier: Apache-2.0
//
// For wheels. GCC 12's libstdc++ has a new version of a function that earlier ones have, too, and
// the linker would take the new one. The earlier version does the same, except that a thread that
// waits in it cannot be cancelled.
__asm__(
    ".symver _ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE, "
    "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE@GLIBCXX_3.4.11");
