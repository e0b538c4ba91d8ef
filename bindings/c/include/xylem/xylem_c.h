// SPDX-License-Identifier: Apache-2.0
//
// Xylem's C API (C11). It offers the C++ API under C names: start a runtime, get its world
// communicator, call operations, wait for their work. docs/errors.md and docs/threading.md describe
// both APIs.
//
//  * A function that can fail returns XYLEM_OK or a code that tells the caller what to do next;
//    xylem_last_error() gives the reason.
//  * Any thread may call any function. Destroy or release a handle only while no other thread uses
//    it.
//  * Buffers belong to the caller, and are in host memory or in memory of a CUDA device. Calls
//    detect where a buffer is (docs/gpu.md). Buffers must stay valid and untouched until the work
//    that uses them has ended.
//  * Later versions may add fields at the end of structs that begin with `struct_size`. Fields
//    beyond the `struct_size` that the caller sets count as zero.
#pragma once

// NOLINTBEGIN(modernize-*, readability-identifier-naming): this is C
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define XYLEM_C_API __attribute__((visibility("default")))
#else
#define XYLEM_C_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/// One rank's membership in a job.
typedef struct xylem_runtime xylem_runtime;
/// An ordered set of ranks whose messages are separate from those of other communicators.
typedef struct xylem_communicator xylem_communicator;
/// One operation in progress.
typedef struct xylem_work xylem_work;

// ---- Outcomes ----

/// XYLEM_OK, or the kind of failure, which tells the caller what to do next. Later versions may add
/// values, but never change a value.
typedef int32_t xylem_status;
enum {
  XYLEM_OK = 0,
  XYLEM_INVALID_ARGUMENT = 1,  ///< The call is wrong: correct it.
  XYLEM_UNSUPPORTED = 2,  ///< Not supported by this build, machine or type: choose another way.
  XYLEM_EXHAUSTED = 3,  ///< Memory, descriptors or a quota ran out: free some, or raise the limit.
  XYLEM_TIMED_OUT = 4,  ///< A deadline passed: the message names the missing rank.
  XYLEM_CANCELLED = 5,  ///< A rank aborted the communicator, or left while operations were pending.
  XYLEM_PEER_LOST = 6,  ///< A rank died or closed its connection: restart the job.
  XYLEM_LINK_LOST = 7,  ///< The path to a rank that is alive failed.
  XYLEM_DEVICE_LOST = 8,    ///< A NIC or GPU stopped answering.
  XYLEM_MISMATCH = 9,       ///< Ranks disagree on a call, a configuration or a version.
  XYLEM_BAD_SCHEDULE = 10,  ///< A plan failed verification.
  XYLEM_BUSY = 11,          ///< Operations are pending: wait for them first.
  XYLEM_INTERNAL = 12,      ///< A bug in Xylem.
};

/// The name of a code, such as "peer_lost"; "unknown" for a number that is not a code of this
/// version.
XYLEM_C_API const char* xylem_status_name(xylem_status status);

/// The reason of the last failure on this thread: the value, the rule and the remedy. Like errno it
/// is kept for each thread, and successful calls do not change it. The text is valid until another
/// call fails on this thread. Never null.
XYLEM_C_API const char* xylem_last_error(void);

/// As a result: no rank. As the source of a receive: any rank (XYLEM_ANY_SOURCE).
#define XYLEM_NO_RANK UINT32_MAX
/// The world rank that caused the last error on this thread; XYLEM_NO_RANK if no rank did.
XYLEM_C_API uint32_t xylem_last_error_peer(void);
/// Not 0 if, after the last error on this thread, a transport may access the operation's buffers
/// until the process ends: do not free or reuse them.
XYLEM_C_API int xylem_last_error_holds_buffers(void);

/// The library's version, such as "0.1.0".
XYLEM_C_API const char* xylem_version(void);

/// Allocates zeroed, page-aligned memory for buffers and stores its address in `*memory`. Ranks on
/// the same host read large messages from such memory in place. Requires no runtime. Fails with
/// XYLEM_INVALID_ARGUMENT for 0 bytes, with XYLEM_EXHAUSTED if there is too little memory, and with
/// XYLEM_UNSUPPORTED if the system denies unnamed shared memory.
XYLEM_C_API xylem_status xylem_allocate(size_t bytes, void** memory);
/// Allocates memory of a CUDA device, with undefined contents, and stores its address in `*memory`.
/// `device` is the number of the device in this process. Requires no runtime. Fails with
/// XYLEM_INVALID_ARGUMENT for 0 bytes, with XYLEM_EXHAUSTED if the device has too little memory,
/// and with XYLEM_UNSUPPORTED if there is no such device, no driver, or no support for CUDA in the
/// library; xylem_last_error() gives the reason.
XYLEM_C_API xylem_status xylem_allocate_on_device(size_t bytes, int32_t device, void** memory);
/// Frees memory from xylem_allocate() or xylem_allocate_on_device(). No operation on the memory may
/// be in progress. Returns XYLEM_INVALID_ARGUMENT for other memory. Freeing memory of a device
/// blocks until the device has completed all enqueued work, including work on streams that wait for
/// Xylem's operations.
XYLEM_C_API xylem_status xylem_deallocate(void* memory);

// ---- Elements and reductions ----

/// Element types. The values never change.
typedef int32_t xylem_data_type;
enum {
  XYLEM_INT8 = 0,
  XYLEM_UINT8 = 1,
  XYLEM_INT16 = 2,
  XYLEM_UINT16 = 3,
  XYLEM_INT32 = 4,
  XYLEM_UINT32 = 5,
  XYLEM_INT64 = 6,
  XYLEM_UINT64 = 7,
  XYLEM_BOOL = 8,     ///< One byte: zero is false, any other value is true. Results are 0 or 1.
  XYLEM_FLOAT16 = 9,  ///< IEEE 754 binary16.
  XYLEM_BFLOAT16 = 10,
  XYLEM_FLOAT32 = 11,
  XYLEM_FLOAT64 = 12,
  XYLEM_FLOAT8_E4M3 = 13,  ///< OFP8 E4M3 (torch's float8_e4m3fn). Sums beyond 448 become 448.
  XYLEM_FLOAT8_E5M2 = 14,  ///< OFP8 E5M2 (torch's float8_e5m2). Has infinities.
};

/// Bytes of one element; 0 if `type` is not an element type.
XYLEM_C_API size_t xylem_data_type_size(xylem_data_type type);

/// Reductions, defined as in <xylem/runtime/types.h>: integers wrap around, min and max propagate
/// NaN, and floats of 16 and 8 bits are added in fp32. The values never change.
typedef int32_t xylem_redop;
enum {
  XYLEM_SUM = 0,
  XYLEM_PRODUCT = 1,
  XYLEM_MIN = 2,
  XYLEM_MAX = 3,
  XYLEM_AVG = 4,      ///< The sum divided once by the number of ranks. Not for bool.
  XYLEM_BIT_AND = 5,  ///< Bitwise, for integers and bool.
  XYLEM_BIT_OR = 6,
  XYLEM_BIT_XOR = 7,
  /// The sum of each rank's input times that rank's factor, for floats only. The factor is an
  /// argument of the ..._premul_sum functions; in other calls it is 1.
  XYLEM_PREMUL_SUM = 8,
};

// ---- Start and end ----

/// The largest size of a value in a store, in bytes.
#define XYLEM_STORE_VALUE_MAX 65536

/// A key-value store of the caller (torch's, etcd, ...) through which the ranks find each other at
/// start. Keys are short ASCII texts, and each is set once. The functions are called during
/// xylem_runtime_create() by one thread at a time. `context` must stay valid until
/// xylem_runtime_destroy(). The functions return a status; they must not throw or call longjmp().
typedef struct xylem_store {
  size_t struct_size;  ///< sizeof(xylem_store)
  void* context;       ///< Passed to both functions.
  xylem_status (*set)(void* context, const char* key, const void* value, size_t size);
  /// Blocks until the key is set, at most for `timeout_ms`; after that returns XYLEM_TIMED_OUT.
  /// Writes the value, at most XYLEM_STORE_VALUE_MAX bytes, to `value`, and its length to `*size`.
  xylem_status (*get)(
      void* context, const char* key, uint64_t timeout_ms, void* value, size_t* size);
} xylem_store;

/// Settings for the start of a runtime. If a field is zero or null, the value comes from the
/// environment (docs/configuration.md), the launcher or the default, in this order. The comment of
/// a field names its environment variable. Texts are copied.
typedef struct xylem_options {
  size_t struct_size;         ///< sizeof(xylem_options)
  uint32_t rank;              ///< XYLEM_RANK; set together with `size`.
  uint32_t size;              ///< XYLEM_SIZE
  const char* rendezvous;     ///< XYLEM_RENDEZVOUS: "tcp://host:port", served by rank 0, or
                              ///< "file:///shared/directory".
  const xylem_store* store;   ///< Used instead of `rendezvous`.
  const char* job;            ///< XYLEM_JOB
  const char* secret;         ///< XYLEM_SECRET
  uint64_t start_timeout_ms;  ///< XYLEM_START_TIMEOUT; default: 60 s.
  uint64_t timeout_ms;        ///< XYLEM_TIMEOUT, for each operation; default: 30 min.
  const char* transport;      ///< XYLEM_TRANSPORT: auto, shm, tcp, ucx-rdma, ucx-tcp
  const char* algorithm;      ///< XYLEM_ALGORITHM: "ring" or "all_reduce=ring,all_gather=bruck"
  const char* interfaces;     ///< XYLEM_INTERFACES: "eth0,ib0" or "^docker0"
  const char* devices;        ///< XYLEM_DEVICES: "mlx5_0,mlx5_1" or "^mlx5_2"
  const char* log;            ///< XYLEM_LOG: level[,file=path]
  const char* require;        ///< XYLEM_REQUIRE: shm, tcp, rdma
} xylem_options;

/// Starts a runtime: detects the launcher, finds the other ranks and connects to them. Collective
/// over the job; every step has a deadline. `options` may be null. Without a launcher the job has
/// one rank. On failure `*runtime` is null.
XYLEM_C_API xylem_status xylem_runtime_create(const xylem_options* options,
                                              xylem_runtime** runtime);

/// Leaves the job in an orderly way, after all sent data has left this process. Returns XYLEM_BUSY
/// while any operation is pending. Returns XYLEM_TIMED_OUT if a peer that has not left did not
/// accept the data sent to it within a minute, or within xylem_options::timeout_ms if that is
/// shorter. In this case the runtime has shut down, and the rest of the data is lost. The handle
/// must still be destroyed.
XYLEM_C_API xylem_status xylem_runtime_shutdown(xylem_runtime* runtime);

/// Shuts down the runtime, unless xylem_runtime_shutdown() has done so, and aborts pending
/// operations. Then frees the handle and its world communicator. The handles of other communicators
/// and of works must still be destroyed or released; all operations on these communicators fail.
/// Null is ignored.
XYLEM_C_API void xylem_runtime_destroy(xylem_runtime* runtime);

/// The communicator of all ranks. It belongs to the runtime: never destroy it.
XYLEM_C_API xylem_communicator* xylem_runtime_world(xylem_runtime* runtime);

XYLEM_C_API uint32_t xylem_runtime_rank(const xylem_runtime* runtime);
XYLEM_C_API uint32_t xylem_runtime_size(const xylem_runtime* runtime);
/// This rank's index among the ranks of the job on this host.
XYLEM_C_API uint32_t xylem_runtime_local_rank(const xylem_runtime* runtime);
/// The number of ranks of the job on this host.
XYLEM_C_API uint32_t xylem_runtime_local_size(const xylem_runtime* runtime);
/// Host name of a rank of the job, owned by the runtime; null if there is no such rank.
XYLEM_C_API const char* xylem_runtime_host(const xylem_runtime* runtime, uint32_t rank);
/// The launcher that started the job: "torchrun", "openmpi", "mpich", "slurm", "xylem" or
/// "options"; otherwise "none". Owned by the runtime.
XYLEM_C_API const char* xylem_runtime_launcher(const xylem_runtime* runtime);

// ---- Communicators ----

XYLEM_C_API uint32_t xylem_communicator_rank(const xylem_communicator* communicator);
XYLEM_C_API uint32_t xylem_communicator_size(const xylem_communicator* communicator);
/// Number of this communicator in logs and errors.
XYLEM_C_API uint32_t xylem_communicator_id(const xylem_communicator* communicator);
/// The world rank of a rank of this communicator; XYLEM_NO_RANK if there is no such rank.
XYLEM_C_API uint32_t xylem_communicator_world_rank(const xylem_communicator* communicator,
                                                   uint32_t rank);

/// Forms a communicator of the ranks that pass equal `color`, ordered by (`key`, rank). Collective;
/// blocks. A rank with `color` < 0 joins no communicator and gets null with XYLEM_OK. The caller
/// must destroy the result.
XYLEM_C_API xylem_status xylem_communicator_split(xylem_communicator* communicator,
                                                  int32_t color,
                                                  int32_t key,
                                                  xylem_communicator** result);
/// Makes a communicator with the same ranks. Collective; blocks.
XYLEM_C_API xylem_status xylem_communicator_duplicate(xylem_communicator* communicator,
                                                      xylem_communicator** result);
/// Makes a handle to the same communicator whose calls run in the order of a CUDA stream: a call
/// begins when the stream has completed the work enqueued before the call, and work enqueued after
/// the call begins when the call has ended. So pass a `work` to these calls, and release it without
/// waiting: if `work` is null, the function blocks until the stream has reached the call and the
/// call has ended. `stream` is a CUstream, which is a cudaStream_t; null is the legacy default
/// stream. The caller keeps the stream alive until all its work has completed. `device` is the
/// number of the stream's device in this process. Buffers must be in memory of that device or in
/// pinned memory. See docs/gpu.md. Not collective. The caller must destroy the result; this does
/// not end the communicator.
XYLEM_C_API xylem_status xylem_communicator_on_stream(xylem_communicator* communicator,
                                                      void* stream,
                                                      int32_t device,
                                                      xylem_communicator** result);
/// Binds a CUDA device to a communicator on each rank, so that its collectives on streams may run
/// on the devices alone, without the CPU. `device` is the number of the device in this process, or
/// -1 on a rank without a device. Collective; blocks. If the devices reach each other's memory,
/// later collectives on streams of these devices run on the devices; `*is_mesh` becomes 1.
/// Otherwise `*is_mesh` becomes 0. `is_mesh` may be null. If every rank has a device, the buffers
/// of each later collective must be in device memory on all ranks or in host memory on all ranks,
/// also without a mesh; otherwise it ends with XYLEM_MISMATCH. Communicator::bind()
/// (communicator.h) describes the consequences.
XYLEM_C_API xylem_status xylem_communicator_bind(xylem_communicator* communicator,
                                                 int32_t device,
                                                 int* is_mesh);
/// Ends a communicator on this rank and frees the handle; not collective. While operations are
/// pending, returns XYLEM_BUSY, and the handle remains valid. For a handle from
/// xylem_communicator_on_stream(), only frees the handle. Null is ignored.
XYLEM_C_API xylem_status xylem_communicator_destroy(xylem_communicator* communicator);
/// Ends all pending operations, on all ranks, with XYLEM_CANCELLED, and makes later operations on
/// the communicator fail. Returns within a second.
XYLEM_C_API xylem_status xylem_communicator_abort(xylem_communicator* communicator,
                                                  const char* why);

/// How a call would be executed; equal on all ranks. Texts are truncated to fit.
typedef struct xylem_plan {
  size_t struct_size;  ///< sizeof(xylem_plan), set by the caller
  double predicted_us;
  double runner_up_us;
  char algorithm[64];
  char runner_up[64];  ///< Empty if there is no other algorithm.
  char reason[512];
} xylem_plan;

/// Describes how a call would be executed. `collective` is a name such as "all_reduce", `count` the
/// number of elements in one rank's share, and `root` 0 if the collective has none.
XYLEM_C_API xylem_status xylem_communicator_plan(xylem_communicator* communicator,
                                                 const char* collective,
                                                 uint64_t count,
                                                 xylem_data_type type,
                                                 uint32_t root,
                                                 xylem_plan* plan);

// ---- Operations ----
//
// All ranks must call the collectives on one communicator in the same order, with the same
// operation, type, counts, reduction and root. Otherwise every rank gets XYLEM_MISMATCH, and no
// output is corrupted. n is the size of the communicator, and `count` is in elements. Input and
// output must not overlap, unless the call is in place as described at each function.
//
// The last argument is `work`. If it is null, the function waits and returns the outcome. Otherwise
// the function starts the operation and returns; wait for `*work` and release it. If the function
// returns an error, nothing is in progress and `*work` is null.

/// output[i] = reduction over all ranks of input[i]. In place: equal addresses.
XYLEM_C_API xylem_status xylem_all_reduce(xylem_communicator* communicator,
                                          const void* input,
                                          void* output,
                                          size_t count,
                                          xylem_data_type type,
                                          xylem_redop op,
                                          xylem_work** work);
/// Like xylem_all_reduce(), but only `root` gets the result; `output` of other ranks is ignored.
XYLEM_C_API xylem_status xylem_reduce(xylem_communicator* communicator,
                                      const void* input,
                                      void* output,
                                      size_t count,
                                      xylem_data_type type,
                                      xylem_redop op,
                                      uint32_t root,
                                      xylem_work** work);
/// `output` of every rank = `input` of the root; `input` of other ranks is ignored. In place: equal
/// addresses.
XYLEM_C_API xylem_status xylem_broadcast(xylem_communicator* communicator,
                                         const void* input,
                                         void* output,
                                         size_t count,
                                         xylem_data_type type,
                                         uint32_t root,
                                         xylem_work** work);

/// output (n * count) = the inputs of all ranks (count each) in rank order. In place: input =
/// output + rank * count elements.
XYLEM_C_API xylem_status xylem_all_gather(xylem_communicator* communicator,
                                          const void* input,
                                          void* output,
                                          size_t count,
                                          xylem_data_type type,
                                          xylem_work** work);
/// Like xylem_all_gather(), but rank i contributes counts[i] elements. `counts` has n entries,
/// equal on all ranks, and may be freed after the call.
XYLEM_C_API xylem_status xylem_all_gather_v(xylem_communicator* communicator,
                                            const void* input,
                                            void* output,
                                            const uint64_t* counts,
                                            xylem_data_type type,
                                            xylem_work** work);

/// Rank i's output (count) = part i of the reduced inputs (n * count). In place: output = input +
/// rank * count elements.
XYLEM_C_API xylem_status xylem_reduce_scatter(xylem_communicator* communicator,
                                              const void* input,
                                              void* output,
                                              size_t count,
                                              xylem_data_type type,
                                              xylem_redop op,
                                              xylem_work** work);
/// Like xylem_reduce_scatter(), but rank i gets counts[i] elements. `counts` is as in
/// xylem_all_gather_v().
XYLEM_C_API xylem_status xylem_reduce_scatter_v(xylem_communicator* communicator,
                                                const void* input,
                                                void* output,
                                                const uint64_t* counts,
                                                xylem_data_type type,
                                                xylem_redop op,
                                                xylem_work** work);

/// Part i (count) of rank j's output (n * count) = part j of rank i's input (n * count). In place:
/// equal addresses (this costs a copy).
XYLEM_C_API xylem_status xylem_all_to_all(xylem_communicator* communicator,
                                          const void* input,
                                          void* output,
                                          size_t count,
                                          xylem_data_type type,
                                          xylem_work** work);
/// Sends send_counts[i] elements to rank i and receives recv_counts[i] elements from it, packed in
/// rank order. Not possible in place.
XYLEM_C_API xylem_status xylem_all_to_all_v(xylem_communicator* communicator,
                                            const void* input,
                                            const uint64_t* send_counts,
                                            void* output,
                                            const uint64_t* recv_counts,
                                            xylem_data_type type,
                                            xylem_work** work);

/// Root's output (n * count) = the inputs of all ranks (count each) in rank order. In place at the
/// root: input = output + root * count elements.
XYLEM_C_API xylem_status xylem_gather(xylem_communicator* communicator,
                                      const void* input,
                                      void* output,
                                      size_t count,
                                      xylem_data_type type,
                                      uint32_t root,
                                      xylem_work** work);
/// Rank i's output (count) = part i of the root's input (n * count). In place at the root: output =
/// input + root * count elements.
XYLEM_C_API xylem_status xylem_scatter(xylem_communicator* communicator,
                                       const void* input,
                                       void* output,
                                       size_t count,
                                       xylem_data_type type,
                                       uint32_t root,
                                       xylem_work** work);

/// A barrier: ends only after all ranks have called it.
XYLEM_C_API xylem_status xylem_barrier(xylem_communicator* communicator, xylem_work** work);

/// The reductions above with XYLEM_PREMUL_SUM. `factor` is this rank's factor; ranks may pass
/// different factors.
XYLEM_C_API xylem_status xylem_all_reduce_premul_sum(xylem_communicator* communicator,
                                                     const void* input,
                                                     void* output,
                                                     size_t count,
                                                     xylem_data_type type,
                                                     double factor,
                                                     xylem_work** work);
XYLEM_C_API xylem_status xylem_reduce_premul_sum(xylem_communicator* communicator,
                                                 const void* input,
                                                 void* output,
                                                 size_t count,
                                                 xylem_data_type type,
                                                 double factor,
                                                 uint32_t root,
                                                 xylem_work** work);
XYLEM_C_API xylem_status xylem_reduce_scatter_premul_sum(xylem_communicator* communicator,
                                                         const void* input,
                                                         void* output,
                                                         size_t count,
                                                         xylem_data_type type,
                                                         double factor,
                                                         xylem_work** work);
XYLEM_C_API xylem_status xylem_reduce_scatter_v_premul_sum(xylem_communicator* communicator,
                                                           const void* input,
                                                           void* output,
                                                           const uint64_t* counts,
                                                           xylem_data_type type,
                                                           double factor,
                                                           xylem_work** work);

/// As `from` of xylem_recv(): the receive matches the first message with its tag from any rank.
#define XYLEM_ANY_SOURCE XYLEM_NO_RANK

/// Point to point. Messages from one rank with one tag match the receives with this source and tag
/// in the order of the calls. A message may be shorter than the buffer of its receive: the rest of
/// the buffer is not written, and xylem_work_count() returns the length of the message. If the
/// message is longer, the receive ends with XYLEM_MISMATCH and writes nothing. The send then ends
/// with XYLEM_MISMATCH, too, unless it has ended already; the communicator remains usable. If the
/// types differ, all ranks get XYLEM_MISMATCH. A send ends when its buffer may be reused, possibly
/// before the receive is called.
XYLEM_C_API xylem_status xylem_send(xylem_communicator* communicator,
                                    const void* buffer,
                                    size_t count,
                                    xylem_data_type type,
                                    uint32_t to,
                                    uint32_t tag,
                                    xylem_work** work);
/// `from` is a rank of the communicator or XYLEM_ANY_SOURCE. With the latter, xylem_work_source()
/// returns the sender.
XYLEM_C_API xylem_status xylem_recv(xylem_communicator* communicator,
                                    void* buffer,
                                    size_t count,
                                    xylem_data_type type,
                                    uint32_t from,
                                    uint32_t tag,
                                    xylem_work** work);

// ---- Work ----
//
// Any thread may test a work or wait for it; several threads may do so at the same time. After a
// work has ended, no transport accesses its buffers, except after an error for which
// xylem_last_error_holds_buffers() is not 0.

/// Whether the operation has ended. If it has not, makes progress on the job's operations first.
/// True for null.
XYLEM_C_API bool xylem_work_test(const xylem_work* work);
/// Waits until the operation has ended, at most until its deadline (xylem_options::timeout_ms), and
/// returns its outcome.
XYLEM_C_API xylem_status xylem_work_wait(const xylem_work* work);
/// Like xylem_work_wait(), but waits for at most `limit_ns`. Returns XYLEM_TIMED_OUT if the
/// operation has not ended by then. The operation continues, and the work remains valid.
XYLEM_C_API xylem_status xylem_work_wait_for(const xylem_work* work, uint64_t limit_ns);
/// Sets the operation's deadline to `limit_ns` after its beginning, instead of
/// xylem_options::timeout_ms. At the deadline the operation ends with XYLEM_TIMED_OUT on all ranks.
/// No effect on an operation that has ended. Null is ignored.
XYLEM_C_API void xylem_work_set_timeout(const xylem_work* work, uint64_t limit_ns);
/// Outcome of an operation that has ended; XYLEM_BUSY while it is in progress.
XYLEM_C_API xylem_status xylem_work_status(const xylem_work* work);
/// World rank of the sender of a received message; this rank's world rank for other operations.
/// Valid only after success.
XYLEM_C_API uint32_t xylem_work_source(const xylem_work* work);
/// Number of elements of a received message; 0 for other operations, and for null. Valid only after
/// success.
XYLEM_C_API uint64_t xylem_work_count(const xylem_work* work);
/// Frees the handle, without waiting or cancelling: an operation in progress continues to use its
/// buffers. Null is ignored.
XYLEM_C_API void xylem_work_release(xylem_work* work);

#ifdef __cplusplus
}
#endif
// NOLINTEND(modernize-*, readability-identifier-naming)
