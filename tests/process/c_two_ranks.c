// SPDX-License-Identifier: Apache-2.0
//
// The C interface between two processes: a C11 program linked to libxylem.so and run by `xylem run
// -n 2`.
#include "support/c_expect.h"
#include <xylem/xylem_c.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kRanks = 2, kElements = 100000 };

// Element i of rank r is (i + 1) (r + 1), so the sums are 3, 6, ....
static void reductions(xylem_communicator* world, uint32_t rank) {
  static float values[kElements], sums[kElements], halves[kElements / kRanks];
  for (int i = 0; i < kElements; ++i) values[i] = (float)((i % 1000 + 1) * ((int)rank + 1));
  xylem_work* first = NULL;
  xylem_work* second = NULL;
  OK(xylem_all_reduce(world, values, sums, kElements, XYLEM_FLOAT32, XYLEM_SUM, &first));
  OK(xylem_reduce_scatter(world, values, halves, kElements / kRanks, XYLEM_FLOAT32, XYLEM_MAX,
                          &second));
  OK(xylem_work_wait(second));
  OK(xylem_work_wait(first));
  xylem_work_release(first);
  xylem_work_release(second);
  for (int i = 0; i < kElements; ++i) CHECK(sums[i] == (float)((i % 1000 + 1) * 3));
  for (int i = 0; i < kElements / kRanks; ++i) {
    const int at = (int)rank * (kElements / kRanks) + i;
    CHECK(halves[i] == (float)((at % 1000 + 1) * kRanks));
  }
  // The root sums 10 * 1 from rank 0 and 100 * 2 from rank 1.
  float product = 0;
  OK(xylem_reduce_premul_sum(world, values, &product, 1, XYLEM_FLOAT32, rank == 0 ? 10.0 : 100.0, 1,
                             NULL));
  CHECK(rank != 1 || product == 210.0F);
}

static void moves(xylem_communicator* world, uint32_t rank) {
  int64_t from_root[2] = {(int64_t)rank, 5};
  OK(xylem_broadcast(world, from_root, from_root, 2, XYLEM_INT64, 1, NULL));
  CHECK(from_root[0] == 1 && from_root[1] == 5);

  // Rank 0 contributes one element, and rank 1 two elements.
  const uint64_t counts[kRanks] = {1, 2};
  const int32_t mine[2] = {(int32_t)rank * 10, (int32_t)rank * 10 + 1};
  int32_t all[3] = {-1, -1, -1};
  OK(xylem_all_gather_v(world, mine, all, counts, XYLEM_INT32, NULL));
  CHECK(all[0] == 0 && all[1] == 10 && all[2] == 11);

  // Each rank sends one element to rank 0 and two elements to rank 1. So it receives rank + 1
  // elements from each rank.
  const uint64_t received[kRanks] = {rank + 1, rank + 1};
  const uint8_t parts[3] = {(uint8_t)(rank * 100), (uint8_t)(rank * 100 + 1),
                            (uint8_t)(rank * 100 + 2)};
  uint8_t crossed[4] = {255, 255, 255, 255};
  OK(xylem_all_to_all_v(world, parts, counts, crossed, received, XYLEM_UINT8, NULL));
  if (rank == 0) {
    CHECK(crossed[0] == 0 && crossed[1] == 100 && crossed[2] == 255);
  } else {
    CHECK(crossed[0] == 1 && crossed[1] == 2 && crossed[2] == 101 && crossed[3] == 102);
  }

  double gathered[kRanks] = {-1, -1};
  const double own = rank + 0.5;
  OK(xylem_gather(world, &own, gathered, 1, XYLEM_FLOAT64, 0, NULL));
  CHECK(rank != 0 || (gathered[0] == 0.5 && gathered[1] == 1.5));
  double scattered = -1;
  OK(xylem_scatter(world, gathered, &scattered, 1, XYLEM_FLOAT64, 0, NULL));
  CHECK(scattered == own);
  OK(xylem_barrier(world, NULL));
}

static void messages(xylem_communicator* world, uint32_t rank) {
  static uint16_t large[kElements];
  uint16_t small = 0;
  xylem_work* work = NULL;
  if (rank == 0) {
    OK(xylem_recv(world, &small, 1, XYLEM_UINT16, XYLEM_ANY_SOURCE, 7, &work));
    OK(xylem_work_wait(work));
    CHECK(small == 77 && xylem_work_source(work) == 1);
    xylem_work_release(work);
    OK(xylem_recv(world, large, kElements, XYLEM_UINT16, 1, 8, NULL));
    for (int i = 0; i < kElements; ++i) CHECK(large[i] == (uint16_t)i);
  } else {
    for (int i = 0; i < kElements; ++i) large[i] = (uint16_t)i;
    small = 77;
    OK(xylem_send(world, large, kElements, XYLEM_UINT16, 0, 8, &work));
    OK(xylem_send(world, &small, 1, XYLEM_UINT16, 0, 7, NULL));
    OK(xylem_work_wait(work));
    xylem_work_release(work);
  }
}

// Rank 1 makes invalid calls, and rank 0 makes none. The calls are refused, and a refused call does
// not count.
static void refusals(xylem_communicator* world, uint32_t rank) {
  int32_t one = 1, sum = 0, got = 0;
  if (rank == 1) {
    FAILS(XYLEM_INVALID_ARGUMENT,
          xylem_all_reduce(world, NULL, &sum, 1, XYLEM_INT32, XYLEM_SUM, NULL));
    CHECK(xylem_last_error_peer() == XYLEM_NO_RANK && xylem_last_error_holds_buffers() == 0);
    xylem_work* work = NULL;
    FAILS(XYLEM_INVALID_ARGUMENT, xylem_broadcast(world, &one, &one, 1, XYLEM_INT32, 2, &work));
    CHECK(work == NULL);
    FAILS(XYLEM_INVALID_ARGUMENT, xylem_send(world, NULL, 1, XYLEM_INT32, 0, 9, NULL));
    OK(xylem_send(world, &one, 1, XYLEM_INT32, 0, 9, NULL));
  } else {
    OK(xylem_recv(world, &got, 1, XYLEM_INT32, 1, 9, NULL));
    CHECK(got == 1);
  }
  OK(xylem_all_reduce(world, &one, &sum, 1, XYLEM_INT32, XYLEM_SUM, NULL));
  CHECK(sum == kRanks);
}

// The ranks disagree on a call of a communicator in which they are in reverse order. Both ranks get
// the error, and the world stays usable.
static void disagreement(xylem_communicator* world, uint32_t rank) {
  xylem_communicator* reversed = NULL;
  OK(xylem_communicator_split(world, 3, -(int32_t)rank, &reversed));
  CHECK(xylem_communicator_rank(reversed) == kRanks - 1 - rank);
  CHECK(xylem_communicator_world_rank(reversed, 0) == 1);
  float values[5] = {0};
  FAILS(XYLEM_MISMATCH,
        xylem_all_reduce(reversed, values, values, 4 + rank, XYLEM_FLOAT32, XYLEM_SUM, NULL));
  CHECK(strstr(xylem_last_error(), "all_reduce of 4 float32") != NULL);
  CHECK(strstr(xylem_last_error(), "all_reduce of 5 float32") != NULL);
  FAILS(XYLEM_MISMATCH, xylem_barrier(reversed, NULL));
  OK(xylem_communicator_destroy(reversed));
  OK(xylem_barrier(world, NULL));
}

int main(void) {
  xylem_runtime* runtime = NULL;
  OK(xylem_runtime_create(NULL, &runtime));
  CHECK(xylem_runtime_size(runtime) == kRanks);
  CHECK(strcmp(xylem_runtime_launcher(runtime), "xylem") == 0);
  xylem_communicator* world = xylem_runtime_world(runtime);
  const uint32_t rank = xylem_communicator_rank(world);
  reductions(world, rank);
  moves(world, rank);
  messages(world, rank);
  refusals(world, rank);
  disagreement(world, rank);
  OK(xylem_runtime_shutdown(runtime));
  xylem_runtime_destroy(runtime);
  return EXIT_SUCCESS;
}
