/* SPDX-License-Identifier: Apache-2.0
 *
 * What mpi_coll and ucc_coll share: the calls' timing and checking, under MPI's launcher.
 *
 *   mpirun -n N PROGRAM [--in-place] OPERATION SIZE...
 *
 * float32, sum, root 0; out of place, or in place, for which `out` holds what is given, too. Sizes
 * are in bytes, with nccl-tests' meaning. A sample is the slowest rank's time of one call, a
 * barrier before each outside of the clock; calls are made for 0.2 s, at least 5. Results are
 * checked before and after the timing. Prints one line for each size:
 *
 *   OPERATION BYTES ITERATIONS MIN P50 P99 WRONG        (times in microseconds)
 */
#ifndef COLL_TIMING_H
#define COLL_TIMING_H

#include <stddef.h>

extern int ranks, rank, is_in_place;

/* A call: `count` is one rank's share where the data has parts, else the whole buffer. */
struct call {
  int count;
  size_t input, output; /* elements */
  float *in, *out;
};

/* Where a broadcast of one buffer has its result: the root's is its input. */
float* broadcast_buffer(const struct call* c);

/* How a library makes the operation of this name. `result`: where it leaves it, NULL for `out`. */
struct collective {
  const char* name;
  void (*make)(const struct call*);
  float* (*result)(const struct call*);
};

/* Fills `ranks` and `rank`; after MPI_Init. */
void find_place(void);

/* Measures what the command line asks for. Returns the exit status. */
int run_coll(int argc, char** argv, const struct collective* collectives, size_t count);

#endif
