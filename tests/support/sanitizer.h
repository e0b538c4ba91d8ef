// SPDX-License-Identifier: Apache-2.0
//
// The sanitizer that the tests are built with. A sanitizer makes a test five to ten times slower.
// It finds memory errors and data races, for which a sample of the cases is enough: so tests of
// many cases run a sample under a sanitizer.
#pragma once

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define XYLEM_THREAD_SANITIZER
#endif
#if __has_feature(address_sanitizer)
#define XYLEM_ADDRESS_SANITIZER
#endif
#endif

namespace xylem::test {

#ifdef XYLEM_THREAD_SANITIZER
inline constexpr bool kHasThreadSanitizer = true;
#else
inline constexpr bool kHasThreadSanitizer = false;
#endif
#ifdef XYLEM_ADDRESS_SANITIZER
inline constexpr bool kHasSanitizer = true;
#else
inline constexpr bool kHasSanitizer = kHasThreadSanitizer;
#endif

}  // namespace xylem::test
