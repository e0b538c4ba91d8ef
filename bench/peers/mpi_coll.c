/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_coll: times an MPI library's collectives in the same way as `xylem bench` times Xylem's, for
 * bench/compare. See coll_timing.h. In place means MPI_IN_PLACE.
 */
#include "coll_timing.h"

#include <mpi.h>

static const void* given(const struct call* c) { return is_in_place ? MPI_IN_PLACE : c->in; }

static void all_reduce(const struct call* c) {
  MPI_Allreduce(given(c), c->out, c->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}
static void reduce(const struct call* c) {
  /* In place concerns only the root; the other ranks pass `out` as their input. */
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
static void exchange(const struct call* c) {
  MPI_Request requests[2];
  MPI_Irecv(c->out, c->count, MPI_FLOAT, (rank + ranks - 1) % ranks, 0, MPI_COMM_WORLD,
            &requests[0]);
  MPI_Isend(c->in, c->count, MPI_FLOAT, (rank + 1) % ranks, 0, MPI_COMM_WORLD, &requests[1]);
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
}
static void ping_pong(const struct call* c) {
  if (rank == 0) MPI_Send(c->in, c->count, MPI_FLOAT, 1, 0, MPI_COMM_WORLD);
  if (rank < 2) {
    MPI_Recv(c->out, c->count, MPI_FLOAT, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  if (rank == 1) MPI_Send(c->in, c->count, MPI_FLOAT, 0, 0, MPI_COMM_WORLD);
}

static const struct collective kCollectives[] = {
    {"all_reduce", all_reduce, NULL},
    {"reduce", reduce, NULL},
    {"broadcast", broadcast, broadcast_buffer},
    {"all_gather", all_gather, NULL},
    {"reduce_scatter", reduce_scatter, NULL},
    {"all_to_all", all_to_all, NULL},
    {"gather", gather, NULL},
    {"scatter", scatter, NULL},
    {"barrier", barrier, NULL},
    {"send_recv", send_recv, NULL},
    {"exchange", exchange, NULL},
    {"ping_pong", ping_pong, NULL},
};

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  find_place();
  const int status = run_coll(argc, argv, kCollectives, sizeof kCollectives / sizeof *kCollectives);
  MPI_Finalize();
  return status;
}
