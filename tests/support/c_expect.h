// SPDX-License-Identifier: Apache-2.0
//
// Checks for programs in C that test the C interface. The first failing check ends the program.
#pragma once

#include <xylem/xylem_c.h>

#include <stdio.h>
#include <stdlib.h>

static void expect_at(int line, xylem_status status, xylem_status wanted) {
  if (status == wanted) return;
  printf("line %d: %s instead of %s: %s\n", line, xylem_status_name(status),
         xylem_status_name(wanted), xylem_last_error());
  exit(EXIT_FAILURE);
}

static void check_at(int line, bool holds, const char* what) {
  if (holds) return;
  printf("line %d: %s does not hold\n", line, what);
  exit(EXIT_FAILURE);
}

#define OK(call) expect_at(__LINE__, (call), XYLEM_OK)
#define FAILS(wanted, call) expect_at(__LINE__, (call), (wanted))
#define CHECK(claim) check_at(__LINE__, (claim), #claim)
