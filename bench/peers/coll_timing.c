/* SPDX-License-Identifier: Apache-2.0 */
#include "coll_timing.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kFewestCalls = 5, kMostCalls = 20000 };
static const double kRowSeconds = 0.2;

int ranks, rank, is_in_place;

/* Small whole numbers, so that sums over ranks are exact in float32 in any order. */
static float value(int from, size_t index) {
  unsigned int bits = (unsigned int)index * 2654435761u ^ (unsigned int)(from + 1) * 2246822519u;
  return (float)((bits ^ bits >> 15) % 61);
}

static float sum_of_values(size_t index) {
  float sum = 0;
  for (int from = 0; from < ranks; from++) sum += value(from, index);
  return sum;
}

/* The right value of element i in this rank's output. */
static float summed(const struct call* c, size_t i) {
  (void)c;
  return sum_of_values(i);
}
static float summed_part(const struct call* c, size_t i) {
  return sum_of_values((size_t)rank * (size_t)c->count + i);
}
static float of_root(const struct call* c, size_t i) {
  (void)c;
  return value(0, i);
}
static float part_of_root(const struct call* c, size_t i) {
  return value(0, (size_t)rank * (size_t)c->count + i);
}
static float of_each(const struct call* c, size_t i) {
  return value((int)(i / (size_t)c->count), i % (size_t)c->count);
}
static float part_of_each(const struct call* c, size_t i) {
  return value((int)(i / (size_t)c->count), (size_t)rank * (size_t)c->count + i % (size_t)c->count);
}
static float of_previous(const struct call* c, size_t i) {
  (void)c;
  return value((rank + ranks - 1) % ranks, i);
}

static float of_partner(const struct call* c, size_t i) {
  (void)c;
  return value(1 - rank, i);
}

/* An operation, independent of the library. `right` returns the right value of an element; NULL if
 * there is no data. `input_parts`, `output_parts`: whether that buffer has a share for each rank.
 * `results`: only the ranks below this number have a result; 0: all ranks. `messages`: number of
 * consecutive messages in one call; times are divided by it. */
struct operation {
  const char* name;
  float (*right)(const struct call*, size_t);
  int input_parts, output_parts, results, messages;
};

static const struct operation kOperations[] = {
    {"all_reduce", summed, 0, 0, 0, 1},
    {"reduce", summed, 0, 0, 1, 1},
    {"broadcast", of_root, 0, 0, 0, 1},
    {"all_gather", of_each, 0, 1, 0, 1},
    {"reduce_scatter", summed_part, 1, 0, 0, 1},
    {"all_to_all", part_of_each, 1, 1, 0, 1},
    {"gather", of_each, 0, 1, 1, 1},
    {"scatter", part_of_root, 1, 0, 0, 1},
    {"barrier", NULL, 0, 0, 0, 1},
    {"send_recv", of_previous, 0, 0, 0, 1},
    {"exchange", of_previous, 0, 0, 0, 1},
    {"ping_pong", of_partner, 0, 0, 2, 2},
};

float* broadcast_buffer(const struct call* c) { return rank == 0 ? c->in : c->out; }

static float* allocate(size_t elements) {
  void* memory = NULL;
  if (posix_memalign(&memory, 4096, (elements + 1) * sizeof(float)) != 0) {
    fprintf(stderr, "no memory for %zu elements\n", elements);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  return memory;
}

/* Makes one checked call. Returns the number of wrong elements on all ranks. */
static long check(const struct operation* op, const struct collective* by, const struct call* c) {
  long wrong = 0, all = 0;
  for (size_t i = 0; i < c->input; i++) c->in[i] = value(rank, i);
  for (size_t i = 0; i < c->output; i++) c->out[i] = -1; /* is never right */
  if (is_in_place) {
    const size_t own = op->output_parts ? (size_t)rank * (size_t)c->count : 0;
    memcpy(c->out + own, c->in, c->input * sizeof(float));
  }
  by->make(c);
  const float* out = by->result != NULL ? by->result(c) : c->out;
  if (op->right != NULL && (rank < op->results || op->results == 0)) {
    for (size_t i = 0; i < c->output; i++) wrong += out[i] != op->right(c, i);
  }
  MPI_Allreduce(&wrong, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  return all;
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

/* Makes calls in batches of doubling size until rank 0 decides to stop. Returns the number of
 * samples that rank 0 has in `slowest`. */
static int time_calls(const struct collective* by, const struct call* c, double* slowest) {
  static double times[kMostCalls];
  const double start = MPI_Wtime();
  int done = 0, batch = 1;
  while (batch > 0) {
    for (int i = 0; i < batch; i++) {
      MPI_Barrier(MPI_COMM_WORLD);
      const double before = MPI_Wtime();
      by->make(c);
      times[done++] = (MPI_Wtime() - before) * 1e6;
    }
    batch = done < kMostCalls - done ? done : kMostCalls - done;
    if (MPI_Wtime() - start > kRowSeconds) batch = done < kFewestCalls ? kFewestCalls - done : 0;
    MPI_Bcast(&batch, 1, MPI_INT, 0, MPI_COMM_WORLD);
  }
  MPI_Reduce(times, slowest, done, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  return done;
}

static void measure(const struct operation* op, const struct collective* by, size_t bytes) {
  static double times[kMostCalls];
  const int parts = op->input_parts || op->output_parts;
  size_t count = bytes / sizeof(float) / (size_t)(parts ? ranks : 1);
  if (count == 0) count = 1;
  if (op->right == NULL) count = 0;
  struct call c = {.count = (int)count};
  c.input = count * (size_t)(op->input_parts ? ranks : 1);
  c.output = count * (size_t)(op->output_parts ? ranks : 1);
  c.in = allocate(c.input);
  c.out = allocate(is_in_place && c.input > c.output ? c.input : c.output);

  long wrong = check(op, by, &c);
  for (int i = bytes <= 64 * 1024 ? 20 : 3; i > 0; i--) by->make(&c);
  const int done = time_calls(by, &c, times);
  wrong += check(op, by, &c);
  if (rank == 0) {
    for (int i = 0; i < done; i++) times[i] /= op->messages;
    qsort(times, (size_t)done, sizeof(double), ascending);
    const double p50 = done % 2 ? times[done / 2] : (times[done / 2 - 1] + times[done / 2]) / 2;
    printf("%s %zu %d %.3f %.3f %.3f %ld\n", op->name,
           (parts ? count * (size_t)ranks : count) * sizeof(float), done, times[0], p50,
           times[(done * 99 + 99) / 100 - 1], wrong);
    fflush(stdout);
  }
  free(c.in);
  free(c.out);
}

void find_place(void) {
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
}

int run_coll(int argc, char** argv, const struct collective* collectives, size_t count) {
  const struct operation* op = NULL;
  const struct collective* by = NULL;
  if (argc > 1 && strcmp(argv[1], "--in-place") == 0) {
    is_in_place = 1;
    argc--, argv++;
  }
  for (size_t i = 0; argc > 1 && i < count; i++) {
    if (strcmp(collectives[i].name, argv[1]) == 0) by = &collectives[i];
  }
  for (size_t i = 0; by != NULL && i < sizeof kOperations / sizeof *kOperations; i++) {
    if (strcmp(kOperations[i].name, by->name) == 0) op = &kOperations[i];
  }
  if (op == NULL || argc < 3) {
    if (rank == 0) fprintf(stderr, "usage: PROGRAM [--in-place] OPERATION SIZE...\n");
    return 2;
  }
  for (int i = 2; i < argc; i++) measure(op, by, strtoull(argv[i], NULL, 10));
  return 0;
}
