/* SPDX-License-Identifier: Apache-2.0
 *
 * ucc_coll: times UCC's collectives on host memory, for bench/compare. See coll_timing.h.
 *
 *   mpirun -n N ucc_coll [--yield] [--in-place] OPERATION SIZE...
 *   ucc_coll --version
 *
 * MPI starts the ranks, transports the data that UCC needs to connect them, and provides the
 * barrier. A timed call is the same as in ucc_perftest by default: init, post, test until done,
 * finalize, without persistent collectives. --yield is for more ranks than cores, since UCC itself
 * spins without yielding.
 */
#include "coll_timing.h"

#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucc/api/ucc.h>

enum { kIdlePolls = 32 }; /* With --yield, the number of idle polls before each yield. */

static int is_yielding;
static ucc_lib_h library;
static ucc_context_h context;
static ucc_team_h team;

static void must(ucc_status_t status, const char* what) {
  if (status >= 0) return;
  fprintf(stderr, "ucc_coll: %s: %s\n", what, ucc_status_string(status));
  MPI_Abort(MPI_COMM_WORLD, 3);
}

static ucc_status_t start_gathering(void* mine, void* all, size_t bytes, void* unused, void** at) {
  (void)unused;
  MPI_Request* request = malloc(sizeof *request);
  if (request == NULL) return UCC_ERR_NO_MEMORY;
  MPI_Iallgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, MPI_COMM_WORLD, request);
  *at = request;
  return UCC_OK;
}
static ucc_status_t test_gathering(void* request) {
  int is_done = 0;
  MPI_Test(request, &is_done, MPI_STATUS_IGNORE);
  return is_done ? UCC_OK : UCC_INPROGRESS;
}
static ucc_status_t end_gathering(void* request) {
  free(request);
  return UCC_OK;
}

static void start(void) {
  char number[16];
  snprintf(number, sizeof number, "%d", ranks);
  ucc_oob_coll_t gathering = {.allgather = start_gathering,
                              .req_test = test_gathering,
                              .req_free = end_gathering,
                              .n_oob_eps = (uint32_t)ranks,
                              .oob_ep = (uint32_t)rank};

  ucc_lib_config_h library_config;
  ucc_lib_params_t library_params = {.mask = UCC_LIB_PARAM_FIELD_THREAD_MODE,
                                     .thread_mode = UCC_THREAD_SINGLE};
  must(ucc_lib_config_read(NULL, NULL, &library_config), "ucc_lib_config_read");
  must(ucc_init(&library_params, library_config, &library), "ucc_init");
  ucc_lib_config_release(library_config);

  ucc_context_config_h config;
  ucc_context_params_t params = {.mask = UCC_CONTEXT_PARAM_FIELD_TYPE | UCC_CONTEXT_PARAM_FIELD_OOB,
                                 .type = UCC_CONTEXT_SHARED,
                                 .oob = gathering};
  must(ucc_context_config_read(library, NULL, &config), "ucc_context_config_read");
  /* UCX's choices depend on these; ucc_perftest sets them as well. */
  must(ucc_context_config_modify(config, NULL, "ESTIMATED_NUM_EPS", number), "ESTIMATED_NUM_EPS");
  must(ucc_context_config_modify(config, NULL, "ESTIMATED_NUM_PPN", number), "ESTIMATED_NUM_PPN");
  must(ucc_context_create(library, &params, config, &context), "ucc_context_create");
  ucc_context_config_release(config);

  ucc_team_params_t team_params = {
      .mask = UCC_TEAM_PARAM_FIELD_EP | UCC_TEAM_PARAM_FIELD_EP_RANGE | UCC_TEAM_PARAM_FIELD_OOB,
      .ep = (uint64_t)rank,
      .ep_range = UCC_COLLECTIVE_EP_RANGE_CONTIG,
      .oob = gathering};
  must(ucc_team_create_post(&context, 1, &team_params, &team), "ucc_team_create_post");
  ucc_status_t status;
  while ((status = ucc_team_create_test(team)) == UCC_INPROGRESS) {
    ucc_context_progress(context);
    sched_yield();
  }
  must(status, "ucc_team_create_test");
}

static void stop(void) {
  ucc_status_t status;
  while ((status = ucc_team_destroy(team)) == UCC_INPROGRESS) {
    ucc_context_progress(context);
    sched_yield();
  }
  must(status, "ucc_team_destroy");
  ucc_context_destroy(context);
  ucc_finalize(library);
}

static void make(ucc_coll_args_t* args) {
  ucc_coll_req_h request;
  must(ucc_collective_init(args, &request, team), "ucc_collective_init");
  must(ucc_collective_post(request), "ucc_collective_post");
  ucc_status_t status;
  for (int idle = 0; (status = ucc_collective_test(request)) == UCC_INPROGRESS;) {
    ucc_context_progress(context);
    if (is_yielding && ++idle >= kIdlePolls) {
      sched_yield();
      idle = 0;
    }
  }
  must(status, "ucc_collective_test");
  must(ucc_collective_finalize(request), "ucc_collective_finalize");
}

static ucc_coll_buffer_info_t buffer(float* memory, size_t count) {
  return (ucc_coll_buffer_info_t){.buffer = memory,
                                  .count = count,
                                  .datatype = UCC_DT_FLOAT32,
                                  .mem_type = UCC_MEMORY_TYPE_HOST};
}

/* UCC's counts cover all parts of a buffer, not one rank's share. */
static ucc_coll_args_t arguments(ucc_coll_type_t type, const struct call* c) {
  ucc_coll_args_t args = {.coll_type = type, .op = UCC_OP_SUM, .root = 0};
  args.src.info = buffer(c->in, c->input);
  args.dst.info = buffer(c->out, c->output);
  if (is_in_place) {
    args.mask = UCC_COLL_ARGS_FIELD_FLAGS;
    args.flags = UCC_COLL_ARGS_FLAG_IN_PLACE;
  }
  return args;
}

static void all_reduce(const struct call* c) {
  ucc_coll_args_t args = arguments(UCC_COLL_TYPE_ALLREDUCE, c);
  make(&args);
}
static void reduce(const struct call* c) {
  ucc_coll_args_t args = arguments(UCC_COLL_TYPE_REDUCE, c);
  /* In place concerns only the root; the other ranks pass `out` as their input. */
  if (is_in_place) args.src.info.buffer = c->out;
  make(&args);
}
static void broadcast(const struct call* c) {
  ucc_coll_args_t args = arguments(UCC_COLL_TYPE_BCAST, c);
  args.src.info.buffer = broadcast_buffer(c);
  args.mask = 0; /* A broadcast has one buffer, and no flag for in-place calls. */
  make(&args);
}
static void all_gather(const struct call* c) {
  ucc_coll_args_t args = arguments(UCC_COLL_TYPE_ALLGATHER, c);
  make(&args);
}
static void reduce_scatter(const struct call* c) {
  ucc_coll_args_t args = arguments(UCC_COLL_TYPE_REDUCE_SCATTER, c);
  if (is_in_place) args.dst.info.count = c->input;
  make(&args);
}
static void all_to_all(const struct call* c) {
  ucc_coll_args_t args = arguments(UCC_COLL_TYPE_ALLTOALL, c);
  make(&args);
}
static void barrier(const struct call* c) {
  (void)c;
  ucc_coll_args_t args = {.coll_type = UCC_COLL_TYPE_BARRIER};
  make(&args);
}

/* In place, MPI's reduce_scatter puts a rank's part into the first block, UCC's into its own. */
static float* own_block(const struct call* c) {
  return c->out + (is_in_place ? (size_t)rank * (size_t)c->count : 0);
}

static const struct collective kCollectives[] = {
    {"all_reduce", all_reduce, NULL},
    {"reduce", reduce, NULL},
    {"broadcast", broadcast, broadcast_buffer},
    {"all_gather", all_gather, NULL},
    {"reduce_scatter", reduce_scatter, own_block},
    {"all_to_all", all_to_all, NULL},
    {"barrier", barrier, NULL},
};

int main(int argc, char** argv) {
  if (argc == 2 && strcmp(argv[1], "--version") == 0) {
    puts(ucc_get_version_string());
    return 0;
  }
  MPI_Init(&argc, &argv);
  find_place();
  if (argc > 1 && strcmp(argv[1], "--yield") == 0) {
    is_yielding = 1;
    argc--, argv++;
  }
  start();
  const int status = run_coll(argc, argv, kCollectives, sizeof kCollectives / sizeof *kCollectives);
  stop();
  MPI_Finalize();
  return status;
}
