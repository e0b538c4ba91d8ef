// SPDX-License-Identifier: Apache-2.0
//
// A target needs a source to carry precompiled headers; xylem_test_headers has this one.
