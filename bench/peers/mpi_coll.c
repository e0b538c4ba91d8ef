/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_coll: times an MPI library's collectives as `xylem bench` times ours, for bench/compare;
 * coll_timing.h says how. In place is MPI_IN_PLACE.
 */
#include "coll_timing.h"

#include <mpi.h>

static const void* given(const struct call* c) { return is_in_place ? MPI_IN_PLACE : c->in; }

static void all_reduce(const struct call* c) {
  MPI_Allreduce(given(c), c->out, c->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}
static void reduce(const struct call* c) {
  /* In place concerns the root alone; the others give what is in `out`. */
  const void* in = !is_in_place ? c->in : rank == 0 ? MPI_IN_PLACE : c->out;
  MPI_Reduce(in, c->out, c->count, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
}
static void broadcast(const struct call* c) {
  MPI_Bcast(broadcast_buffer(c), c->count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}
static void all_gather(const struct call* c) {
  MPI_Allgather(given(c), c->count, MPI_FLOAT, c->out, c->count, MPI_FLOAT, MPI_COMM_WORLD);
}
static void reduce_scatter(const struct call* c) {
  MPI_Reduce_scatter_block(given(c), c->out, c->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}
static void all_to_all(const struct call* c) {
  MPI_Alltoall(c->in, c->count, MPI_FLOAT, c->out, c->count, MPI_FLOAT, MPI_COMM_WORLD);
}
static void gather(const struct call* c) {
  MPI_Gather(c->in, c->count, MPI_FLOAT, c->out, c->count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}
static void scatter(const struct call* c) {
  MPI_Scatter(c->in, c->count, MPI_FLOAT, c->out, c->count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}
static void barrier(const struct call* c) {
  (void)c;
  MPI_Barrier(MPI_COMM_WORLD);
}
static void send_recv(const struct call* c) {
  MPI_Sendrecv(c->in, c->count, MPI_FLOAT, (rank + 1) % ranks, 0, c->out, c->count, MPI_FLOAT,
               (rank + ranks - 1) % ranks, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static const struct operation kOperations[] = {
    {"all_reduce", all_reduce, summed, 0, 0, 0, NULL},
    {"reduce", reduce, summed, 0, 0, 1, NULL},
    {"broadcast", broadcast, of_root, 0, 0, 0, broadcast_buffer},
    {"all_gather", all_gather, of_each, 0, 1, 0, NULL},
    {"reduce_scatter", reduce_scatter, summed_part, 1, 0, 0, NULL},
    {"all_to_all", all_to_all, part_of_each, 1, 1, 0, NULL},
    {"gather", gather, of_each, 0, 1, 1, NULL},
    {"scatter", scatter, part_of_root, 1, 0, 0, NULL},
    {"barrier", barrier, NULL, 0, 0, 0, NULL},
    {"send_recv", send_recv, of_previous, 0, 0, 0, NULL},
};

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  find_place();
  const int status = run_coll(argc, argv, kOperations, sizeof kOperations / sizeof *kOperations);
  MPI_Finalize();
  return status;
}
