// SPDX-License-Identifier: Apache-2.0
//
// XYLEM_API marks what libxylem.so exports: the classes and functions that <xylem/xylem.h> and
// <xylem/xylem_c.h> declare. All other symbols are hidden.
#pragma once

#define XYLEM_API [[gnu::visibility("default")]]
