// SPDX-License-Identifier: Apache-2.0
//
// Xylem's C API (C11). It is the C++ API under other names: start a runtime, take its world, call
// operations, wait for their work. docs/errors.md and docs/threading.md hold for both.
//
//  * What can fail returns XYLEM_OK or a code that names the remedy; xylem_last_error() says why.
//  * Any thread may call any function, but destroy or release a handle only when no other uses it.
//  * Buffers are the caller's, in host memory, and stay alive and untouched until the work that
//    uses them has ended.
//  * Structs that begin with `struct_size` may grow at their end; fields that a caller does not
//    know are taken as zero.
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
/// An ordered set of ranks with a message space of its own.
typedef struct xylem_communicator xylem_communicator;
/// One operation under way.
typedef struct xylem_work xylem_work;

// ---- Outcomes ----

/// XYLEM_OK, or what went wrong, named by remedy. Later versions may add some; none changes.
typedef int32_t xylem_status;
enum {
  XYLEM_OK = 0,
  XYLEM_INVALID_ARGUMENT = 1,  ///< The call is wrong: mend it.
  XYLEM_UNSUPPORTED = 2,       ///< Not with this build, machine or type: choose another way.
  XYLEM_EXHAUSTED = 3,  ///< Memory, descriptors or a quota ran out: free some, or raise the limit.
  XYLEM_TIMED_OUT = 4,  ///< A deadline passed: the text says who was missing.
  XYLEM_CANCELLED = 5,  ///< The communicator was aborted.
  XYLEM_PEER_LOST = 6,  ///< A rank died: restart.
  XYLEM_LINK_LOST = 7,  ///< A path to a live rank failed.
  XYLEM_DEVICE_LOST = 8,    ///< A NIC or GPU stopped answering.
  XYLEM_MISMATCH = 9,       ///< Ranks disagree on a call, a configuration or a version.
  XYLEM_BAD_SCHEDULE = 10,  ///< A plan failed verification.
  XYLEM_BUSY = 11,          ///< Work is pending: wait for it first.
  XYLEM_INTERNAL = 12,      ///< A bug of ours.
};

/// "peer_lost"; "unknown" for what is no code of this version.
XYLEM_C_API const char* xylem_status_name(xylem_status status);

/// Why the last call that failed on this thread did: the value, the rule and the remedy. Kept for
/// each thread, like errno: calls that succeed leave it, and the text is valid until another call
/// fails on this thread. Never null.
XYLEM_C_API const char* xylem_last_error(void);

/// No rank, or any rank.
#define XYLEM_NO_RANK UINT32_MAX
/// The rank of the job that the last error on this thread blames; XYLEM_NO_RANK if it blames none.
XYLEM_C_API uint32_t xylem_last_error_peer(void);
/// Not 0 if, after the last error on this thread, a transport may still read and write the
/// operation's buffers until the process ends: do not free or reuse them.
XYLEM_C_API int xylem_last_error_holds_buffers(void);

/// The library's version, "0.1.0".
XYLEM_C_API const char* xylem_version(void);

/// Zeroed, page-aligned memory for buffers, into `*memory`: large messages from there to ranks of
/// this host are read where they are. Needs no runtime. Fails with XYLEM_INVALID_ARGUMENT for 0
/// bytes, XYLEM_EXHAUSTED for want of memory, and XYLEM_UNSUPPORTED where the system denies memory
/// without a name.
XYLEM_C_API xylem_status xylem_allocate(size_t bytes, void** memory);
/// Gives it back; no operation may use it any more. XYLEM_INVALID_ARGUMENT for other memory.
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
  XYLEM_BOOL = 8,     ///< One byte; zero is false, anything else true; results are 0 or 1.
  XYLEM_FLOAT16 = 9,  ///< IEEE 754 binary16.
  XYLEM_BFLOAT16 = 10,
  XYLEM_FLOAT32 = 11,
  XYLEM_FLOAT64 = 12,
  XYLEM_FLOAT8_E4M3 = 13,  ///< Moved as bytes; refused in reductions.
  XYLEM_FLOAT8_E5M2 = 14,  ///< Moved as bytes; refused in reductions.
};

/// Bytes of one element; 0 for what is no type.
XYLEM_C_API size_t xylem_data_type_size(xylem_data_type type);

/// Reductions, defined as in <xylem/runtime/types.h>: integers wrap, min and max propagate NaN,
/// 16-bit floats are added in fp32. The values never change.
typedef int32_t xylem_redop;
enum {
  XYLEM_SUM = 0,
  XYLEM_PRODUCT = 1,
  XYLEM_MIN = 2,
  XYLEM_MAX = 3,
  XYLEM_AVG = 4,      ///< The sum, divided once by the number of ranks. Not of bool.
  XYLEM_BIT_AND = 5,  ///< Bitwise: integers and bool.
  XYLEM_BIT_OR = 6,
  XYLEM_BIT_XOR = 7,
  /// The sum of each rank's input times that rank's factor. Floats only. The factor is an argument
  /// of the ..._premul_sum calls; in other calls it is 1.
  XYLEM_PREMUL_SUM = 8,
};

// ---- Start and end ----

/// The largest value in a store, in bytes.
#define XYLEM_STORE_VALUE_MAX 65536

/// A key-value store of the caller's, through which the ranks meet at start (torch's, etcd, ...).
/// Keys are short ASCII text and each is set once. It is called during xylem_runtime_create(), by
/// one thread at a time; `context` must live until xylem_runtime_destroy(). The functions return a
/// status and must not throw or jump out.
typedef struct xylem_store {
  size_t struct_size;  ///< sizeof(xylem_store)
  void* context;       ///< Handed to both functions.
  xylem_status (*set)(void* context, const char* key, const void* value, size_t size);
  /// Waits until the key is set, at most `timeout_ms`: then XYLEM_TIMED_OUT. Writes at most
  /// XYLEM_STORE_VALUE_MAX bytes to `value` and their number to `*size`.
  xylem_status (*get)(
      void* context, const char* key, uint64_t timeout_ms, void* value, size_t* size);
} xylem_store;

/// What a program may set at start. A field that is zero or null is not set: then the environment
/// (docs/configuration.md), the launcher and the default decide, in this order. Texts are copied.
typedef struct xylem_options {
  size_t struct_size;         ///< sizeof(xylem_options)
  uint32_t rank;              ///< XYLEM_RANK; set together with `size`.
  uint32_t size;              ///< XYLEM_SIZE
  const char* rendezvous;     ///< XYLEM_RENDEZVOUS: "tcp://host:port", served by rank 0, or
                              ///< "file:///shared/directory".
  const xylem_store* store;   ///< Wins over `rendezvous`.
  const char* job;            ///< XYLEM_JOB
  const char* secret;         ///< XYLEM_SECRET
  uint64_t start_timeout_ms;  ///< XYLEM_START_TIMEOUT, 60 s
  uint64_t timeout_ms;        ///< XYLEM_TIMEOUT, 30 min: of each operation
  const char* transport;      ///< XYLEM_TRANSPORT: auto, shm, tcp, ucx-rdma, ucx-tcp
  const char* algorithm;      ///< XYLEM_ALGORITHM: "ring" or "all_reduce=ring,all_gather=bruck"
  const char* interfaces;     ///< XYLEM_INTERFACES: "eth0,ib0" or "^docker0"
  const char* devices;        ///< XYLEM_DEVICES: "mlx5_0,mlx5_1" or "^mlx5_2"
  const char* log;            ///< XYLEM_LOG: level[,file=path]
} xylem_options;

/// Starts: detects the launcher, meets the other ranks, connects. Collective over the job; every
/// step has a deadline. `options` may be null. Without a launcher it is a job of one rank. On
/// failure `*runtime` is null.
XYLEM_C_API xylem_status xylem_runtime_create(const xylem_options* options,
                                              xylem_runtime** runtime);

/// Leaves the job in good order, once what was sent has gone; XYLEM_BUSY while any operation is
/// pending. XYLEM_TIMED_OUT if a peer that has not left did not take what was sent to it within a
/// minute, or the options' timeout: the runtime has shut down, and the rest is lost. The handle is
/// still to be destroyed.
XYLEM_C_API xylem_status xylem_runtime_shutdown(xylem_runtime* runtime);

/// Shuts down if that was not done, aborting what is pending, and frees the handle and its world.
/// Other communicators and work stay valid, but everything on them fails. Null is ignored.
XYLEM_C_API void xylem_runtime_destroy(xylem_runtime* runtime);

/// The communicator of all ranks. It belongs to the runtime: never destroy it.
XYLEM_C_API xylem_communicator* xylem_runtime_world(xylem_runtime* runtime);

XYLEM_C_API uint32_t xylem_runtime_rank(const xylem_runtime* runtime);
XYLEM_C_API uint32_t xylem_runtime_size(const xylem_runtime* runtime);
/// Ranks of the job on this host, and this rank's place among them.
XYLEM_C_API uint32_t xylem_runtime_local_rank(const xylem_runtime* runtime);
XYLEM_C_API uint32_t xylem_runtime_local_size(const xylem_runtime* runtime);
/// Host name of a rank of the job, owned by the runtime; null if there is no such rank.
XYLEM_C_API const char* xylem_runtime_host(const xylem_runtime* runtime, uint32_t rank);
/// What started the job: "torchrun", "openmpi", "mpich", "slurm", "xylem", "options"; "none". Owned
/// by the runtime.
XYLEM_C_API const char* xylem_runtime_launcher(const xylem_runtime* runtime);

// ---- Communicators ----

XYLEM_C_API uint32_t xylem_communicator_rank(const xylem_communicator* communicator);
XYLEM_C_API uint32_t xylem_communicator_size(const xylem_communicator* communicator);
/// Number of this communicator in logs and errors.
XYLEM_C_API uint32_t xylem_communicator_id(const xylem_communicator* communicator);
/// The rank in the job of a rank of this communicator; XYLEM_NO_RANK if there is no such rank.
XYLEM_C_API uint32_t xylem_communicator_world_rank(const xylem_communicator* communicator,
                                                   uint32_t rank);

/// Ranks of equal color form a communicator, ordered by (key, rank). Collective; blocks. `color` <
/// 0 takes part in none and gets null with XYLEM_OK. The caller destroys what it gets.
XYLEM_C_API xylem_status xylem_communicator_split(xylem_communicator* communicator,
                                                  int32_t color,
                                                  int32_t key,
                                                  xylem_communicator** result);
/// A communicator of the same ranks. Collective; blocks.
XYLEM_C_API xylem_status xylem_communicator_duplicate(xylem_communicator* communicator,
                                                      xylem_communicator** result);
/// Ends a communicator here and frees its handle; not collective. XYLEM_BUSY, and the handle stays,
/// while operations are pending. Null is ignored.
XYLEM_C_API xylem_status xylem_communicator_destroy(xylem_communicator* communicator);
/// Ends every pending operation on all ranks with XYLEM_CANCELLED and poisons the communicator.
/// Returns within a second.
XYLEM_C_API xylem_status xylem_communicator_abort(xylem_communicator* communicator,
                                                  const char* why);

/// How a call would be carried out; the same on all ranks. Texts are cut to fit.
typedef struct xylem_plan {
  size_t struct_size;  ///< sizeof(xylem_plan), set by the caller.
  double predicted_us;
  double runner_up_us;
  char algorithm[64];
  char runner_up[64];  ///< Empty where there is no other.
  char reason[512];
} xylem_plan;

/// `collective` by name ("all_reduce"); `count` in elements of one rank's share; `root` 0 where
/// there is none.
XYLEM_C_API xylem_status xylem_communicator_plan(xylem_communicator* communicator,
                                                 const char* collective,
                                                 uint64_t count,
                                                 xylem_data_type type,
                                                 uint32_t root,
                                                 xylem_plan* plan);

// ---- Operations ----
//
// All ranks call collectives on one communicator in the same order, with the same operation, type,
// counts, reduction and root; otherwise every rank gets XYLEM_MISMATCH and no output is corrupted.
// n is the size of the communicator. `count` is in elements. Out of place, input and output must
// not overlap; in place is as said at each call.
//
// Last argument `work`: where it is null, the call waits and returns the outcome. Otherwise the
// call starts the operation and returns; `*work` is then to be waited for and released. If the call
// returns an error, nothing is under way and `*work` is null.

/// output[i] = op over ranks of input[i]. In place: equal addresses.
XYLEM_C_API xylem_status xylem_all_reduce(xylem_communicator* communicator,
                                          const void* input,
                                          void* output,
                                          size_t count,
                                          xylem_data_type type,
                                          xylem_redop op,
                                          xylem_work** work);
/// The same at `root` only; other ranks' `output` is ignored.
XYLEM_C_API xylem_status xylem_reduce(xylem_communicator* communicator,
                                      const void* input,
                                      void* output,
                                      size_t count,
                                      xylem_data_type type,
                                      xylem_redop op,
                                      uint32_t root,
                                      xylem_work** work);
/// Every rank's `output` = root's `input`; other ranks' `input` is ignored. In place: equal
/// addresses.
XYLEM_C_API xylem_status xylem_broadcast(xylem_communicator* communicator,
                                         const void* input,
                                         void* output,
                                         size_t count,
                                         xylem_data_type type,
                                         uint32_t root,
                                         xylem_work** work);

/// output (n * count) = the ranks' inputs (count) in rank order. In place: input = output + rank *
/// count elements.
XYLEM_C_API xylem_status xylem_all_gather(xylem_communicator* communicator,
                                          const void* input,
                                          void* output,
                                          size_t count,
                                          xylem_data_type type,
                                          xylem_work** work);
/// Rank i gives counts[i] elements. `counts` has n entries, alike on all ranks, and may be freed at
/// once.
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
/// Rank i gets counts[i] elements. `counts` as in all_gather_v.
XYLEM_C_API xylem_status xylem_reduce_scatter_v(xylem_communicator* communicator,
                                                const void* input,
                                                void* output,
                                                const uint64_t* counts,
                                                xylem_data_type type,
                                                xylem_redop op,
                                                xylem_work** work);

/// Part i (count) of rank j's output (n * count) = part j of rank i's input (n * count). In place:
/// equal addresses (costs a copy).
XYLEM_C_API xylem_status xylem_all_to_all(xylem_communicator* communicator,
                                          const void* input,
                                          void* output,
                                          size_t count,
                                          xylem_data_type type,
                                          xylem_work** work);
/// Sends send_counts[i] elements to rank i and gets recv_counts[i] from it, packed in rank order.
/// Out of place only.
XYLEM_C_API xylem_status xylem_all_to_all_v(xylem_communicator* communicator,
                                            const void* input,
                                            const uint64_t* send_counts,
                                            void* output,
                                            const uint64_t* recv_counts,
                                            xylem_data_type type,
                                            xylem_work** work);

/// Root's output (n * count) = the ranks' inputs (count) in rank order. In place at the root: input
/// = output + root * count elements.
XYLEM_C_API xylem_status xylem_gather(xylem_communicator* communicator,
                                      const void* input,
                                      void* output,
                                      size_t count,
                                      xylem_data_type type,
                                      uint32_t root,
                                      xylem_work** work);
/// Rank i's output (count) = part i of root's input (n * count). In place at the root: output =
/// input + root * count elements.
XYLEM_C_API xylem_status xylem_scatter(xylem_communicator* communicator,
                                       const void* input,
                                       void* output,
                                       size_t count,
                                       xylem_data_type type,
                                       uint32_t root,
                                       xylem_work** work);

/// Ends on no rank before it has begun on all.
XYLEM_C_API xylem_status xylem_barrier(xylem_communicator* communicator, xylem_work** work);

/// The reductions with XYLEM_PREMUL_SUM and this rank's factor, which may differ from other ranks'.
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

/// Source of a receive that takes the first message of its tag from any rank.
#define XYLEM_ANY_SOURCE XYLEM_NO_RANK

/// Point to point. A message goes to the receive of the same (source, tag) in the order sent and
/// received; count and type must agree, or both ends get XYLEM_MISMATCH. A send ends when its
/// buffer may be reused, which may be before the receive is called.
XYLEM_C_API xylem_status xylem_send(xylem_communicator* communicator,
                                    const void* buffer,
                                    size_t count,
                                    xylem_data_type type,
                                    uint32_t to,
                                    uint32_t tag,
                                    xylem_work** work);
/// `from` is a rank of the communicator or XYLEM_ANY_SOURCE; then xylem_work_source() says whose
/// message came.
XYLEM_C_API xylem_status xylem_recv(xylem_communicator* communicator,
                                    void* buffer,
                                    size_t count,
                                    xylem_data_type type,
                                    uint32_t from,
                                    uint32_t tag,
                                    xylem_work** work);

// ---- Work ----
//
// Any thread may test or wait, several at once. When work has ended, with or without error, no
// transport touches its buffers any more.

/// True when the operation has ended; moves things forward a little. Null has ended.
XYLEM_C_API bool xylem_work_test(const xylem_work* work);
/// Waits until the operation has ended, at most until its own deadline (xylem_options::timeout_ms),
/// and returns its outcome.
XYLEM_C_API xylem_status xylem_work_wait(const xylem_work* work);
/// Waits at most `limit_ns`; XYLEM_TIMED_OUT then says that the operation goes on, and the work
/// stays valid.
XYLEM_C_API xylem_status xylem_work_wait_for(const xylem_work* work, uint64_t limit_ns);
/// Gives the operation a deadline of its own, `limit_ns` after it has begun, instead of
/// xylem_options::timeout_ms; then it ends with XYLEM_TIMED_OUT on all ranks as any other. Without
/// effect on an operation that has ended. Null is ignored.
XYLEM_C_API void xylem_work_set_timeout(const xylem_work* work, uint64_t limit_ns);
/// Outcome of an ended operation; XYLEM_BUSY while it goes on.
XYLEM_C_API xylem_status xylem_work_status(const xylem_work* work);
/// Rank in the job that a receive got its message from; the own rank for other operations. Only
/// after success.
XYLEM_C_API uint32_t xylem_work_source(const xylem_work* work);
/// Frees the handle. This neither waits nor cancels: an operation that goes on keeps using its
/// buffers. Null is ignored.
XYLEM_C_API void xylem_work_release(xylem_work* work);

#ifdef __cplusplus
}
#endif
// NOLINTEND(modernize-*, readability-identifier-naming)
