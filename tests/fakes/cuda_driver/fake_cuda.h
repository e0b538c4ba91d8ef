// SPDX-License-Identifier: Apache-2.0
//
// A stand-in for libcuda.so.1, for machines without a GPU. It behaves like a driver with GPUs. It
// is made to detect errors of order and ownership in programs that use the driver:
//
// - Device memory faults if the host accesses it. Only commands on streams can access its bytes.
// - Streams run on a few threads, the hardware queues. All priorities share these queues. A queue
//   is chosen for each command. If possible, it is a queue in which no other stream waits. If as
//   many streams wait as there are queues, nothing else runs. Each command starts after a delay
//   drawn from a seed.
// - cuMemFree and the loading of a kernel (by cuKernelGetFunction, or at its first launch outside
//   of a capture) wait until the device is idle. Meanwhile, calls of other threads with the same
//   context are blocked.
// - An invalid handle, a wrong context and similar errors return CUDA's error code, and are counted
//   as misuse.
//
// Environment variables, which are read when the library is loaded, and by fake_cuda_reset(). The
// value after the semicolon is the default:
//
//   FAKE_CUDA_DEVICES      number of devices; 1
//   FAKE_CUDA_MEMORY_MB    memory of each device; 4096
//   FAKE_CUDA_QUEUES       hardware queues of each device, with which as many streams may wait as
//                          on an H200 (tests/gpu); by default, two less than
//                          CUDA_DEVICE_MAX_CONNECTIONS (8 if not set), but at least 1
//   FAKE_CUDA_MPS          1: devices state that processes share them by MPS; 0. In either case, a
//                          device runs the work of all processes at the same time.
//   FAKE_CUDA_FLUSH        1: devices can flush writes of other devices, and a wait for a word of a
//                          device that does not ask for this is misuse; 0
//   FAKE_CUDA_SEED         seed of delays and of the order of blocks; 1
//   FAKE_CUDA_DELAY_US     the longest delay before a command; 0
//   FAKE_CUDA_VERSION      version of the driver; 13000. cuGetProcAddress does not find functions
//                          that are newer.
//   FAKE_CUDA_INIT         what cuInit returns, as a number; 0
//   FAKE_CUDA_KERNELS      path of the library that has the kernels (host_kernel.h)
//   FAKE_CUDA_OPEN_GATE    path of a file; none. While a process holds it locked (flock),
//                          cuIpcOpenMemHandle does not return.
//   FAKE_CUDA_FAULTS       items separated by commas; none. FUNCTION:N=CODE: the N-th call of
//                          FUNCTION returns CODE and does nothing else. FUNCTION is an exported
//                          name, such as cuMemAlloc_v2. If CODE means that a device is lost, such
//                          as 700 or 719, later calls for this device return it, too, its commands
//                          end without effect, and its waits end. unsupported=memops,
//                          unsupported=ipc and unsupported=peers switch features off.
//
// Functions that do not exist, so cuGetProcAddress reports that it has not found them: contexts
// that are not primary (cuCtxCreate), modules, arrays, textures, per-thread default-stream variants
// (_ptsz), event times, legacy versions of functions. Graphs have no nodes that are not captured,
// no updates of executable graphs, no external events, no launches from a device, and no
// cuStreamUpdateCaptureDependencies.
//
// Features that return CUDA_ERROR_NOT_SUPPORTED: sharing of memory pools between processes, fabric
// handles, physical memory and pools on the host, read-only access. Allocations and frees of pools
// cannot be captured: they invalidate a capture.
//
// What a kernel writes to memory of another device or process becomes visible there only by a
// fence, and a kernel that has waited for a word must fence before it accesses such memory
// (host_kernel.h).
//
// Simplifications: a seed determines the delays, but not how the system schedules the threads. All
// other memory is coherent, and memory operations are not reordered. If a kernel writes beyond the
// end of an allocation, this is detected only beyond the allocation's last page. Every device
// allocation uses a file descriptor. The process must not fork after cuInit. Each process can use
// the whole memory of a device. If two processes record the same shared event at the same time, the
// event is complete when the later record is complete.
//
// A test program opens the library by dlopen and finds the functions below by dlsym.
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/// The number of calls that no correct program makes. The second function describes the last of
/// them.
unsigned long fake_cuda_misuses(void);
/// The text is valid until the same thread calls this function again.
const char* fake_cuda_last_misuse(void);

/// Returns an address at which a test can read and write a byte of device memory. NULL if no
/// allocation contains the byte.
void* fake_cuda_host_view(const void* device_address);

/// The number of calls of a function of the driver, by its exported name, or of launches of a
/// kernel.
unsigned long fake_cuda_calls(const char* function);

/// While `is_exempt` is not 0, calls by this thread are not counted, and FAKE_CUDA_FAULTS does not
/// make them fail. A test uses this for its own calls, to distinguish them from those of the tested
/// program.
void fake_cuda_exempt(int is_exempt);

/// After this call, a command that uses memory of process `process` is a misuse.
void fake_cuda_forbid_opened(int process);

/// Reports a copy or a kernel that has run: the number of its device, "copy" or the kernel's name,
/// the size of a copy in bytes, and when it began and ended, in nanoseconds of CLOCK_MONOTONIC.
typedef void (*fake_cuda_watcher)(
    int device, const char* what, size_t bytes, long long begin, long long end);
/// Calls `watcher` after each copy and kernel, on a thread of the stand-in. NULL removes the
/// watcher.
void fake_cuda_watch(fake_cuda_watcher watcher);

/// The number of objects of a kind that exist. The kinds are "context", "stream", "event",
/// "library", "memory" (cuMemAlloc, cuMemHostAlloc, cuMemAllocManaged), "registration"
/// (cuMemHostRegister), "opened" (IPC), "physical" (cuMemCreate, imported), "mapping" (cuMemMap),
/// "reservation" (cuMemAddressReserve), and "graph" (including executable graphs and graphs that
/// are being captured).
size_t fake_cuda_live(const char* kind);

/// Replaces the state of the driver by its initial state, ends all waits, and reads the environment
/// again. The program must then call cuInit again. No other thread may be in a call of the driver.
void fake_cuda_reset(void);

#ifdef __cplusplus
}
#endif
