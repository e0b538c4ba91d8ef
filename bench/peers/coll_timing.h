/* SPDX-License-Identifier: Apache-2.0
 *
 * Timing and checking of calls under MPI's launcher, shared by mpi_coll and ucc_coll.
 *
 *   mpirun -n N PROGRAM [--in-place] OPERATION SIZE...
 *
 * Data is float32, reductions are sums, the root is 0. Without --in-place, input and output are
 * separate; with it, `out` also holds the input. Sizes are in bytes, with the meaning that they
 * have in nccl-tests. A sample is the time of one call on the slowest rank, or half of it for
 * ping_pong. Before each call there is a barrier, which is not timed. Calls are made for 0.2 s, but
 * at least 5. Results are checked before and after the timing. Prints one line for each size:
 *
 *   OPERATION BYTES ITERATIONS MIN P50 P99 WRONG        (times in microseconds)
 */
#ifndef COLL_TIMING_H
#define COLL_TIMING_H

#include <stddef.h>

extern int ranks, rank, is_in_place;

/* A call. `count` is one rank's share if the data has parts, otherwise the whole buffer. */
struct call {
  int count;
  size_t input, output; /* elements */
  float *in, *out;
};

/* The buffer of a broadcast with a single buffer: the root's input, or another rank's output. */
float* broadcast_buffer(const struct call* c);

/* How a library makes the operation `name`. `result` returns its result; NULL means `out`. */
struct collective {
  const char* name;
  void (*make)(const struct call*);
  float* (*result)(const struct call*);
};

/* Sets `ranks` and `rank`. Call after MPI_Init. */
void find_place(void);

/* Measures the operation on the command line. Returns the exit status. */
int run_coll(int argc, char** argv, const struct collective* collectives, size_t count);

#endif
