// SPDX-License-Identifier: Apache-2.0
//
// A library that has all functions of UCX that Xylem calls, and reports version 1.12. Real versions
// of UCX have these functions since 1.10.

#define ucp_get_version other_ucp_get_version  // NOLINT(readability-identifier-naming)
#define XYLEM_UCX(name) \
  extern "C" [[gnu::visibility("default")]] void name() {}
#include "ucx/api_functions.inc"
#undef XYLEM_UCX
#undef ucp_get_version

extern "C" [[gnu::visibility("default")]] void ucp_get_version(unsigned* major,
                                                               unsigned* minor,
                                                               unsigned* release) {
  *major = 1;
  *minor = 12;
  *release = 1;
}
