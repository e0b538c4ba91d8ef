// SPDX-License-Identifier: Apache-2.0
//
// A stand-in for libcuda.so.1 that behaves like a driver with GPUs, for machines without any. It is
// made to find errors of order and of ownership in programs that use the driver:
//
// - Device memory faults when the host touches it. Only commands on streams reach its bytes.
// - Streams run on few threads, the hardware queues, which they share whatever their priority. A
//   queue is chosen for each command: not one in which another stream waits, if there are others.
//   If as many streams wait as there are queues, nothing else runs. Each command starts after a
//   delay drawn from a seed.
// - cuMemFree and the loading of a kernel (by cuKernelGetFunction, or at its first launch that is
//   not captured) wait until the device is idle. Until then all other threads wait in their calls,
//   if they have the same context.
// - A handle that is not valid any more, a wrong context and the like give CUDA's error code, and
//   are counted as misuse.
//
// Environment variables, read when the library is loaded and by fake_cuda_reset():
//
//   FAKE_CUDA_DEVICES      number of devices; 1
//   FAKE_CUDA_MEMORY_MB    memory of each device; 4096
//   FAKE_CUDA_QUEUES       hardware queues of each device; 6, with which as many streams may wait
//                          as on an H200 (docs/gpu.md)
//   FAKE_CUDA_SEED         seed of delays and of the order of blocks; 1
//   FAKE_CUDA_DELAY_US     the longest delay before a command; 0
//   FAKE_CUDA_VERSION      version of the driver; 13000. cuGetProcAddress does not find functions
//                          that are newer.
//   FAKE_CUDA_INIT         what cuInit returns, as a number; 0
//   FAKE_CUDA_KERNELS      path of the library that has the kernels (host_kernel.h)
//   FAKE_CUDA_FAULTS       items separated by commas. FUNCTION:N=CODE: the N-th call of FUNCTION
//                          returns CODE and does nothing else; functions are named as exported,
//                          such as cuMemAlloc_v2. A code that means the loss of a device, such as
//                          700 or 719, stays: later calls for this device return it, its commands
//                          end without effect, and its waits end. unsupported=memops,
//                          unsupported=ipc and unsupported=peers switch features off.
//
// Absent, so that cuGetProcAddress reports that it did not find them: contexts that are not primary
// (cuCtxCreate), modules, arrays, textures, per-thread default-stream variants (_ptsz), event
// times, legacy versions of functions. Of graphs: nodes that are not captured, updates of
// executable graphs, external events, launches from a device, cuStreamUpdateCaptureDependencies.
//
// CUDA_ERROR_NOT_SUPPORTED: sharing of memory pools between processes, fabric handles, physical
// memory and pools on the host, access for reading only. Allocations and frees of pools are no
// nodes of graphs: they invalidate a capture.
//
// Simplified: a seed fixes the delays, but not how the system schedules the threads. All memory is
// coherent, and memory operations are not reordered. A kernel that reaches an allocation and runs
// past its end is found only when it leaves the last page. Every device allocation holds a file
// descriptor. The process must not fork after cuInit. Each process has the whole memory of a
// device. If two processes record one shared event at the same time, it is done when the later
// record is.
//
// A test program opens the library by dlopen and finds the functions below by dlsym.
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/// The number of calls that no correct program makes, and what the last one was.
unsigned long fake_cuda_misuses(void);
/// The text is valid until this thread calls again.
const char* fake_cuda_last_misuse(void);

/// Where a test can read and write a byte of device memory. NULL if no allocation contains it.
void* fake_cuda_host_view(const void* device_address);

/// The number of calls of a function of the driver, named as exported, or of launches of a kernel.
unsigned long fake_cuda_calls(const char* function);

/// While `is_exempt` is not 0, calls by this thread are neither counted nor made to fail by
/// FAKE_CUDA_FAULTS: the test's own calls between those of the program that it tests.
void fake_cuda_exempt(int is_exempt);

/// From now on, commands that use memory of process `process` are a misuse.
void fake_cuda_forbid_opened(int process);

/// A copy or a kernel that has run: the number of its device, "copy" or the kernel's name, the
/// bytes of a copy, and when it began and ended, in nanoseconds of CLOCK_MONOTONIC.
typedef void (*fake_cuda_watcher)(
    int device, const char* what, size_t bytes, long long begin, long long end);
/// Calls `watcher` after each copy and kernel, on a thread of the stand-in. NULL ends that.
void fake_cuda_watch(fake_cuda_watcher watcher);

/// The number of objects that exist: "context", "stream", "event", "library", "memory" (cuMemAlloc,
/// cuMemHostAlloc, cuMemAllocManaged), "registration" (cuMemHostRegister), "opened" (IPC),
/// "physical" (cuMemCreate, imported), "mapping" (cuMemMap), "reservation" (cuMemAddressReserve),
/// "graph" (also executable ones, and those that are being captured).
size_t fake_cuda_live(const char* kind);

/// Forgets everything, ends all waits and reads the environment again. cuInit has to be called
/// again. No other thread may be inside of a call.
void fake_cuda_reset(void);

#ifdef __cplusplus
}
#endif
