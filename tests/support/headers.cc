// SPDX-License-Identifier: Apache-2.0
//
// The only source of the targets xylem_test_headers and xylem_computing_test_headers. CMake
// precompiles headers only for targets with a source.
