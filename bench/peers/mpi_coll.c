/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_coll: times an MPI library's collectives as `xylem bench` times ours, for bench/compare.
 *
 *   mpirun -n N mpi_coll [--in-place] OPERATION SIZE...
 *
 * float32, sum, root 0; out of place, or with MPI_IN_PLACE, for which `out` holds what is given,
 * too. Sizes are in bytes, with nccl-tests' meaning. A sample is the
 * slowest rank's time of one call, a barrier before each outside of the clock; calls are made for
 * 0.2 s, at least 5. Results are checked before and after the timing. Prints one line for each
 * size:
 *
 *   OPERATION BYTES ITERATIONS MIN P50 P99 WRONG        (times in microseconds)
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kFewestCalls = 5, kMostCalls = 20000 };
static const double kRowSeconds = 0.2;

static int ranks, rank, is_in_place;

/* A call: `count` is one rank's share where the data has parts, else the whole buffer. */
struct call {
  int count;
  size_t input, output; /* elements */
  float *in, *out;
};

/* Small whole numbers: sums over ranks are exact in float32 in any order. */
static float value(int from, size_t index) {
  unsigned int bits = (unsigned int)index * 2654435761u ^ (unsigned int)(from + 1) * 2246822519u;
  return (float)((bits ^ bits >> 15) % 61);
}

static float sum_of_values(size_t index) {
  float sum = 0;
  for (int from = 0; from < ranks; from++) sum += value(from, index);
  return sum;
}

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
  MPI_Bcast(rank == 0 ? c->in : c->out, c->count, MPI_FLOAT, 0, MPI_COMM_WORLD);
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

/* What element i of this rank's output must be. */
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

/* `input_parts`, `output_parts`: whether that buffer holds a share for each rank; `root_only`:
 * whether only the root has a result. */
struct operation {
  const char* name;
  void (*make)(const struct call*);
  float (*right)(const struct call*, size_t);
  int input_parts, output_parts, root_only;
};
static const struct operation kOperations[] = {
    {"all_reduce", all_reduce, summed, 0, 0, 0},
    {"reduce", reduce, summed, 0, 0, 1},
    {"broadcast", broadcast, of_root, 0, 0, 0},
    {"all_gather", all_gather, of_each, 0, 1, 0},
    {"reduce_scatter", reduce_scatter, summed_part, 1, 0, 0},
    {"all_to_all", all_to_all, part_of_each, 1, 1, 0},
    {"gather", gather, of_each, 0, 1, 1},
    {"scatter", scatter, part_of_root, 1, 0, 0},
    {"barrier", barrier, NULL, 0, 0, 0},
    {"send_recv", send_recv, of_previous, 0, 0, 0},
};

static float* allocate(size_t elements) {
  void* memory = NULL;
  if (posix_memalign(&memory, 4096, (elements + 1) * sizeof(float)) != 0) {
    fprintf(stderr, "mpi_coll: no memory for %zu elements\n", elements);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  return memory;
}

/* One checked call; wrong elements on all ranks. */
static long check(const struct operation* op, const struct call* c) {
  long wrong = 0, all = 0;
  for (size_t i = 0; i < c->input; i++) c->in[i] = value(rank, i);
  for (size_t i = 0; i < c->output; i++) c->out[i] = -1; /* is never right */
  if (is_in_place) {
    const size_t own = op->output_parts ? (size_t)rank * (size_t)c->count : 0;
    memcpy(c->out + own, c->in, c->input * sizeof(float));
  }
  op->make(c);
  /* MPI's broadcast has one buffer: the root's is its input. */
  const float* out = op->make == broadcast && rank == 0 ? c->in : c->out;
  if (op->right != NULL && (rank == 0 || !op->root_only)) {
    for (size_t i = 0; i < c->output; i++) wrong += out[i] != op->right(c, i);
  }
  MPI_Allreduce(&wrong, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  return all;
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

/* Batches that double, and rank 0 says when it is enough. Returns how many samples rank 0 has in
 * `slowest`. */
static int time_calls(const struct operation* op, const struct call* c, double* slowest) {
  static double times[kMostCalls];
  const double start = MPI_Wtime();
  int done = 0, batch = 1;
  while (batch > 0) {
    for (int i = 0; i < batch; i++) {
      MPI_Barrier(MPI_COMM_WORLD);
      const double before = MPI_Wtime();
      op->make(c);
      times[done++] = (MPI_Wtime() - before) * 1e6;
    }
    batch = done < kMostCalls - done ? done : kMostCalls - done;
    if (MPI_Wtime() - start > kRowSeconds) batch = done < kFewestCalls ? kFewestCalls - done : 0;
    MPI_Bcast(&batch, 1, MPI_INT, 0, MPI_COMM_WORLD);
  }
  MPI_Reduce(times, slowest, done, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  return done;
}

static void measure(const struct operation* op, size_t bytes) {
  static double times[kMostCalls];
  const int parts = op->input_parts || op->output_parts;
  size_t count = bytes / sizeof(float) / (size_t)(parts ? ranks : 1);
  if (count == 0) count = 1;
  if (op->make == barrier) count = 0;
  struct call c = {.count = (int)count};
  c.input = count * (size_t)(op->input_parts ? ranks : 1);
  c.output = count * (size_t)(op->output_parts ? ranks : 1);
  c.in = allocate(c.input);
  c.out = allocate(is_in_place && c.input > c.output ? c.input : c.output);

  long wrong = check(op, &c);
  for (int i = bytes <= 64 * 1024 ? 20 : 3; i > 0; i--) op->make(&c);
  const int done = time_calls(op, &c, times);
  wrong += check(op, &c);
  if (rank == 0) {
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

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const struct operation* op = NULL;
  if (argc > 1 && strcmp(argv[1], "--in-place") == 0) {
    is_in_place = 1;
    argc--, argv++;
  }
  for (size_t i = 0; argc > 1 && i < sizeof kOperations / sizeof *kOperations; i++) {
    if (strcmp(kOperations[i].name, argv[1]) == 0) op = &kOperations[i];
  }
  if (op == NULL || argc < 3) {
    if (rank == 0) fprintf(stderr, "usage: mpi_coll [--in-place] OPERATION SIZE...\n");
    MPI_Finalize();
    return 2;
  }
  for (int i = 2; i < argc; i++) measure(op, strtoull(argv[i], NULL, 10));
  MPI_Finalize();
  return 0;
}
