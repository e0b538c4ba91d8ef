// SPDX-License-Identifier: Apache-2.0
//
// The only source of the target xylem_test_headers: CMake needs one to precompile headers for it.
