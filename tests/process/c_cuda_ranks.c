// SPDX-License-Identifier: Apache-2.0
//
// CUDA memory and streams in the C interface: a C11 program that `xylem run -n 2` runs. Each rank
// uses one device. If there is only one device, the ranks share it.
#include "support/c_expect.h"
#include <xylem/xylem_c.h>

#include <cuda.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kRanks = 2, kElements = 10000, kBytes = kElements * sizeof(int32_t) };

#define CUDA(call) CHECK((call) == CUDA_SUCCESS)

/// The functions of the CUDA driver that this program calls.
static struct {
  CUresult (*init)(unsigned);
  CUresult (*count)(int*);
  CUresult (*retain)(CUcontext*, CUdevice);
  CUresult (*set_current)(CUcontext);
  CUresult (*create_stream)(CUstream*, unsigned, int);
  CUresult (*copy)(CUdeviceptr, CUdeviceptr, size_t, CUstream);
  CUresult (*synchronize)(CUstream);
  CUresult (*allocate_pinned)(void**, size_t, unsigned);
  int devices;  ///< The number of devices.
} cuda;

static void* find(void* library, const char* name) {
  void* const function = dlsym(library, name);
  if (function == NULL) printf("the driver has no %s\n", name);
  CHECK(function != NULL);
  return function;
}

/// Opens the driver, and returns the device of a rank.
static int open_driver(uint32_t rank) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  CHECK(library != NULL);
  *(void**)&cuda.init = find(library, "cuInit");
  *(void**)&cuda.count = find(library, "cuDeviceGetCount");
  *(void**)&cuda.retain = find(library, "cuDevicePrimaryCtxRetain");
  *(void**)&cuda.set_current = find(library, "cuCtxSetCurrent");
  *(void**)&cuda.create_stream = find(library, "cuStreamCreateWithPriority");
  *(void**)&cuda.copy = find(library, "cuMemcpyAsync");
  *(void**)&cuda.synchronize = find(library, "cuStreamSynchronize");
  *(void**)&cuda.allocate_pinned = find(library, "cuMemHostAlloc");
  CUDA(cuda.init(0));
  CUDA(cuda.count(&cuda.devices));
  CHECK(cuda.devices > 0);
  return (int)rank % cuda.devices;
}

static CUstream make_stream(int device) {
  CUcontext context = NULL;
  CUDA(cuda.retain(&context, device));
  CUDA(cuda.set_current(context));
  CUstream stream = NULL;
  CUDA(cuda.create_stream(&stream, CU_STREAM_NON_BLOCKING, 0));
  return stream;
}

static void copy(void* target, const void* source, CUstream stream) {
  CUDA(cuda.copy((CUdeviceptr)target, (CUdeviceptr)source, kBytes, stream));
}

// Rank r contributes (r + 1) (i + round).
static void fill(int32_t* values, uint32_t rank, int round) {
  for (int i = 0; i < kElements; ++i) values[i] = ((int32_t)rank + 1) * (i + round);
}

static bool are_sums(const int32_t* values, int round) {
  for (int i = 0; i < kElements; ++i) {
    if (values[i] != 3 * (i + round)) return false;
  }
  return true;
}

// The caller does not state that its buffers are in device memory.
static void without_stream(xylem_communicator* world, void* memory, CUstream stream) {
  static int32_t values[kElements];
  fill(values, xylem_communicator_rank(world), 0);
  copy(memory, values, stream);
  CUDA(cuda.synchronize(stream));
  OK(xylem_all_reduce(world, memory, memory, kElements, XYLEM_INT32, XYLEM_SUM, NULL));
  copy(values, memory, stream);
  CUDA(cuda.synchronize(stream));
  CHECK(are_sums(values, 0));
}

// The thread waits only for the stream, not for the calls: in the stream's order, the results are
// complete before the later copies run.
static void on_stream(xylem_communicator* world, int device, void* memory, CUstream stream) {
  enum { kRounds = 10 };
  int32_t* pinned = NULL;
  CUDA(cuda.allocate_pinned((void**)&pinned, (size_t)2 * kRounds * kBytes, 0));
  xylem_communicator* ordered = NULL;
  OK(xylem_communicator_on_stream(world, stream, device, &ordered));
  CHECK(xylem_communicator_size(ordered) == kRanks);
  CHECK(xylem_communicator_id(ordered) == xylem_communicator_id(world));
  for (int round = 0; round < kRounds; ++round) {
    int32_t* const before = pinned + (ptrdiff_t)2 * round * kElements;
    fill(before, xylem_communicator_rank(world), round);
    copy(memory, before, stream);
    xylem_work* work = NULL;
    OK(xylem_all_reduce(ordered, memory, memory, kElements, XYLEM_INT32, XYLEM_SUM, &work));
    xylem_work_release(work);
    copy(before + kElements, memory, stream);
  }
  CUDA(cuda.synchronize(stream));
  for (int round = 0; round < kRounds; ++round) {
    CHECK(are_sums(pinned + (ptrdiff_t)(2 * round + 1) * kElements, round));
  }
  // A call on a stream may use pinned host memory, but not pageable memory.
  OK(xylem_all_reduce(ordered, pinned, pinned, 1, XYLEM_INT32, XYLEM_MAX, NULL));
  int32_t pageable = 0;
  FAILS(XYLEM_INVALID_ARGUMENT,
        xylem_all_reduce(ordered, &pageable, &pageable, 1, XYLEM_INT32, XYLEM_MAX, NULL));
  CHECK(strstr(xylem_last_error(), "pinned memory") != NULL);
  OK(xylem_communicator_destroy(ordered));
  OK(xylem_barrier(world, NULL));
}

// The devices of the ranks are bound, so that calls on streams run without the CPU. Processes that
// share a device form no mesh.
static void bound(xylem_communicator* world, int device, void* memory, CUstream stream) {
  xylem_communicator* own = NULL;
  OK(xylem_communicator_duplicate(world, &own));
  int is_mesh = -1;
  OK(xylem_communicator_bind(own, -1, &is_mesh));
  CHECK(is_mesh == 0);
  OK(xylem_communicator_bind(own, device, &is_mesh));
  CHECK(is_mesh == (cuda.devices > 1));
  OK(xylem_communicator_bind(own, device, NULL));
  if (cuda.devices > 1) {
    FAILS(XYLEM_INVALID_ARGUMENT, xylem_communicator_bind(own, 1 - device, &is_mesh));
  }
  FAILS(XYLEM_INVALID_ARGUMENT, xylem_communicator_bind(NULL, device, &is_mesh));
  on_stream(own, device, memory, stream);
  OK(xylem_communicator_destroy(own));
}

static void refusals(xylem_communicator* world, CUstream stream) {
  void* memory = (void*)&memory;
  FAILS(XYLEM_INVALID_ARGUMENT, xylem_allocate_on_device(0, 0, &memory));
  CHECK(memory == NULL);
  FAILS(XYLEM_INVALID_ARGUMENT, xylem_allocate_on_device(1, 0, NULL));
  FAILS(XYLEM_UNSUPPORTED, xylem_allocate_on_device(1, 99, &memory));
  CHECK(strstr(xylem_last_error(), "there is no CUDA device 99") != NULL);
  xylem_communicator* ordered = NULL;
  FAILS(XYLEM_INVALID_ARGUMENT, xylem_communicator_on_stream(NULL, stream, 0, &ordered));
  FAILS(XYLEM_INVALID_ARGUMENT, xylem_communicator_on_stream(world, stream, 0, NULL));
  OK(xylem_communicator_on_stream(world, stream, 99, &ordered));
  FAILS(XYLEM_UNSUPPORTED, xylem_barrier(ordered, NULL));
  OK(xylem_communicator_destroy(ordered));
}

int main(void) {
  xylem_runtime* runtime = NULL;
  OK(xylem_runtime_create(NULL, &runtime));
  xylem_communicator* world = xylem_runtime_world(runtime);
  CHECK(xylem_communicator_size(world) == kRanks);
  const int device = open_driver(xylem_runtime_rank(runtime));
  void* memory = NULL;
  OK(xylem_allocate_on_device(kBytes, device, &memory));
  CUstream stream = make_stream(device);
  without_stream(world, memory, stream);
  on_stream(world, device, memory, stream);
  bound(world, device, memory, stream);
  refusals(world, stream);
  FAILS(XYLEM_INVALID_ARGUMENT, xylem_deallocate((char*)memory + 1));
  OK(xylem_deallocate(memory));
  FAILS(XYLEM_INVALID_ARGUMENT, xylem_deallocate(memory));
  OK(xylem_runtime_shutdown(runtime));
  xylem_runtime_destroy(runtime);
  return EXIT_SUCCESS;
}
