/* SPDX-License-Identifier: Apache-2.0
 *
 * limit: what the memory of this machine gives, for bench/compare.
 *
 *   limit THREADS BYTES
 *
 * Each thread, on a core of its own where there are enough, copies BYTES from one array of its own
 * to another, past the cache, again and again for 0.2 s. Prints the copied bytes of all threads per
 * second, in GB/s (1e9): the median over rounds that all begin together.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum { kMostThreads = 256, kMostRounds = 4096, kFewestRounds = 5 };
static const double kSeconds = 0.2;

static size_t bytes;
static int threads;
static pthread_barrier_t barrier;
static volatile int done;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void copy_past_cache(char* to, const char* from, size_t size) {
#ifdef __SSE2__
  for (size_t i = 0; i < size; i += 64) {
    for (size_t k = 0; k < 64; k += 16) {
      _mm_stream_si128((__m128i*)(to + i + k), _mm_load_si128((const __m128i*)(from + i + k)));
    }
  }
  _mm_sfence();
#else
  memcpy(to, from, size);
#endif
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void* run(void* argument) {
  const int self = (int)(intptr_t)argument;
  static double times[kMostRounds];
  cpu_set_t mine, all;
  CPU_ZERO(&mine);
  if (sched_getaffinity(0, sizeof all, &all) == 0) {
    int left = self % CPU_COUNT(&all);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
      if (CPU_ISSET(cpu, &all) && left-- == 0) CPU_SET(cpu, &mine);
    }
    pthread_setaffinity_np(pthread_self(), sizeof mine, &mine);
  }
  char* from = aligned_alloc(4096, bytes);
  char* to = aligned_alloc(4096, bytes);
  if (from == NULL || to == NULL) {
    fprintf(stderr, "limit: no memory for %zu bytes twice\n", bytes);
    exit(2);
  }
  memset(from, 1, bytes);
  memset(to, 2, bytes);
  const double start = now();
  int round = 0;
  for (;; round++) {
    pthread_barrier_wait(&barrier);
    if (done) break;
    const double begin = now();
    copy_past_cache(to, from, bytes);
    pthread_barrier_wait(&barrier);
    if (self != 0) continue;
    times[round] = now() - begin;
    done = round + 1 == kMostRounds || (round + 1 >= kFewestRounds && now() - start > kSeconds);
  }
  if (self == 0) {
    qsort(times, (size_t)round, sizeof(double), ascending);
    printf("%.3f\n", (double)bytes * threads / times[round / 2] / 1e9);
  }
  free(from);
  free(to);
  return NULL;
}

int main(int count, char** arguments) {
  threads = count == 3 ? atoi(arguments[1]) : 0;
  bytes = count == 3 ? strtoull(arguments[2], NULL, 10) / 4096 * 4096 : 0;
  if (threads < 1 || threads > kMostThreads || bytes == 0) {
    fprintf(stderr, "usage: limit THREADS BYTES (1 to %d threads, 4096 bytes or more)\n",
            kMostThreads);
    return 2;
  }
  pthread_barrier_init(&barrier, NULL, (unsigned)threads);
  pthread_t others[kMostThreads];
  for (intptr_t i = 1; i < threads; i++) pthread_create(&others[i], NULL, run, (void*)i);
  run(NULL);
  for (int i = 1; i < threads; i++) pthread_join(others[i], NULL);
  return 0;
}
