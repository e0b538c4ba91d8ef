/* SPDX-License-Identifier: Apache-2.0 */
/* A user's program in C11. */
#include <xylem/base/version.h>
#include <xylem/xylem_c.h>

#include <stdio.h>
#include <string.h>

int main(void) {
  if (strcmp(xylem_version(), XYLEM_VERSION) != 0) {
    printf("header %s, library %s\n", XYLEM_VERSION, xylem_version());
    return 1;
  }
  printf("xylem %s works in C\n", xylem_version());
  return 0;
}
