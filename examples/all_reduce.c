// SPDX-License-Identifier: Apache-2.0
//
// Sums a vector over all ranks, in C: xylem run -n 2 -- example_all_reduce_c
#include <xylem/xylem_c.h>

#include <stdio.h>

int main(void) {
  xylem_runtime* runtime = NULL;
  if (xylem_runtime_create(NULL, &runtime) != XYLEM_OK) {
    fprintf(stderr, "start: %s\n", xylem_last_error());
    return 1;
  }
  xylem_communicator* world = xylem_runtime_world(runtime);

  float input[1000], output[1000];
  for (int i = 0; i < 1000; ++i) input[i] = 1.0F;
  xylem_work* work = NULL;
  xylem_status status =
      xylem_all_reduce(world, input, output, 1000, XYLEM_FLOAT32, XYLEM_SUM, &work);
  if (status == XYLEM_OK) status = xylem_work_wait(work);
  xylem_work_release(work);
  if (status == XYLEM_OK) {
    printf("rank %u: the sum is %g\n", xylem_communicator_rank(world), output[999]);
  } else {
    fprintf(stderr, "all_reduce: %s: %s\n", xylem_status_name(status), xylem_last_error());
  }
  const int right = status == XYLEM_OK && output[999] == (float)xylem_communicator_size(world);
  xylem_runtime_destroy(runtime);
  return right ? 0 : 1;
}
