// SPDX-License-Identifier: Apache-2.0
//
// The state of the driver: devices, contexts, streams, events and the library of kernels. One mutex
// guards the whole state. Handles are numbers that are never reused, and not addresses. So the
// driver recognizes a destroyed handle, and dereferencing a handle faults.
#pragma once

#include "cuda/kernels/host_kernel.h"
#include "fakes/cuda_driver/graph.h"
#include "fakes/cuda_driver/memory.h"
#include "fakes/cuda_driver/queue.h"
#include "fakes/cuda_driver/reservations.h"
#include "fakes/cuda_driver/settings.h"
#include "fakes/cuda_driver/shared_event.h"

#include <atomic>
#include <bit>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace xylem::fake_cuda {

struct Context;
struct Driver;

/// Returns a number that no handle of any type has had.
std::uint64_t new_handle();

/// Streams have priorities from 0 to kGreatestPriority. The priority has no effect on the choice of
/// hardware queues.
inline constexpr int kGreatestPriority = -5;

struct Stream {
  std::uint64_t number = new_handle();  ///< Unique, unlike the handles of default streams.
  CUstream handle = nullptr;
  Context* context = nullptr;
  Queue* queue = nullptr;  ///< The queue of its newest command.
  unsigned flags = 0;
  int priority = 0;
  CommandPtr last;     ///< Its newest command.
  CapturePtr capture;  ///< Not null while the stream captures.
  std::size_t branch = 0;
  std::vector<NodePtr> newest;              ///< The nodes on which the next node depends.
  std::vector<CUgraphNode> newest_handles;  ///< Handles returned to a caller.
  bool is_blocking() const noexcept { return (flags & CU_STREAM_NON_BLOCKING) == 0; }
};
using StreamPtr = std::shared_ptr<Stream>;

struct Event {
  Context* context = nullptr;
  unsigned flags = 0;
  CommandPtr record;  ///< The newest record of this process; nullptr if there was none.
  std::shared_ptr<SharedEvent> shared;  ///< Not null for events that processes share.
  bool was_opened = false;              ///< The event was exported by another process.
  CapturePtr capture;                   ///< The capture of the newest record, or null.
  std::vector<NodePtr> captured;        ///< The nodes before this record.
};

/// The primary context of a device.
struct Context {
  CUcontext handle = nullptr;
  unsigned long long id = 0;
  Device* device = nullptr;
  StreamPtr legacy;                              ///< The NULL stream.
  std::map<std::uint64_t, StreamPtr> own;        ///< CU_STREAM_PER_THREAD, by thread.
  std::vector<CommandPtr> of_destroyed_streams;  ///< Of blocking streams: their last commands.
  std::set<int> peers;                           ///< Devices whose memory the context may access.
  unsigned flags = 0;
  /// A thread that blocks the calls of all other threads (Call::hold_until_idle), or 0.
  std::uint64_t held_by = 0;
};

/// A memory pool. Memory that is freed does not stay in it.
struct Pool {
  CUmemoryPool handle = nullptr;
  Device* device = nullptr;
  std::set<int> accessors;  ///< Other devices that may access memory of the pool.
  std::size_t used = 0, most_used = 0;
  std::map<int, int> reuse;
  cuuint64_t release_threshold = 0;
};

struct Device {
  explicit Device(Driver& of, int number);
  /// Ends all commands.
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  bool drops_commands() const noexcept { return lost != CUDA_SUCCESS || is_ending; }
  void lose(CUresult result);
  /// The newest command of each queue. When they are done, the device is idle.
  std::vector<CommandPtr> newest_commands() const;

  Driver& driver;
  int ordinal;
  std::atomic<CUresult> lost{CUDA_SUCCESS};  ///< The error that made the device unusable.
  std::atomic<bool> is_ending{false};        ///< Its context is being destroyed.
  std::size_t memory_used = 0;
  std::shared_ptr<Pool> default_pool, pool;  ///< Null before their first use.
  std::vector<std::unique_ptr<Queue>> queues;
  /// Returns the queue for a command of a stream (Stream::number) or of a branch of a graph (0). If
  /// possible, no other stream holds this queue for a long time. Of several such queues, it is the
  /// one with the fewest commands; of several with equal numbers, another one each time.
  Queue& best_queue(std::uint64_t stream);
  std::size_t queues_chosen = 0;
  unsigned retained = 0;
  std::shared_ptr<Context> context;
};

struct Kernel {
  const execution::cuda::HostKernel* host = nullptr;
  CUlibrary library = nullptr;
  std::set<CUcontext> loaded_in;
};

/// Objects by their handles.
template <typename Handle, typename Object>
class Handles {
 public:
  Handle add(std::shared_ptr<Object> object) {
    const auto handle = std::bit_cast<Handle>(new_handle());
    objects_.emplace(handle, std::move(object));
    return handle;
  }
  std::shared_ptr<Object> find(Handle handle) const {
    const auto at = objects_.find(handle);
    return at == objects_.end() ? nullptr : at->second;
  }
  void remove(Handle handle) { objects_.erase(handle); }
  template <typename Predicate>
  void remove_if(Predicate predicate) {
    std::erase_if(objects_, [&](const auto& entry) { return predicate(*entry.second); });
  }
  std::size_t size() const noexcept { return objects_.size(); }
  auto begin() const { return objects_.begin(); }
  auto end() const { return objects_.end(); }

 private:
  std::map<Handle, std::shared_ptr<Object>> objects_;
};

struct Driver {
  explicit Driver(Settings from_environment);
  /// The caller must not hold the mutex.
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  void count_misuse(std::string_view function, std::string_view what);
  const execution::cuda::HostKernel* find_kernel(std::string_view name);
  /// Memory for kernels that access an unknown address: they use this memory until their block
  /// ends.
  void* scratch();
  /// Removes memory, and subtracts its size from the memory in use of its device and its pool.
  void remove(const AllocationPtr& allocation);
  std::shared_ptr<Context> make_context(Device& device);
  /// Waits until all commands of the device have been dropped. `lock` must hold the mutex.
  void destroy_context(Device& device, std::unique_lock<std::mutex>& lock);

  Settings settings;
  bool is_initialised = false;
  std::map<std::string, unsigned long, std::less<>> calls;
  unsigned long misuses = 0;
  int forbidden_process = 0;  ///< A process whose memory commands may not use, or 0.
  std::string last_misuse;
  Memory memory;
  Reservations reservations;
  Handles<CUmemGenericAllocationHandle, Physical> physical;
  std::vector<std::unique_ptr<Device>> devices;
  Handles<CUcontext, Context> contexts;
  Handles<CUstream, Stream> streams;
  Handles<CUevent, Event> events;
  Handles<CUlibrary, int> libraries;
  Handles<CUkernel, Kernel> kernels;
  Handles<CUmemoryPool, Pool> pools;
  Handles<CUgraph, Graph> graphs;
  Handles<CUgraphExec, GraphExec> graph_execs;
  std::vector<CapturePtr> captures;  ///< Captures that have not ended.
  unsigned long long captures_made = 0;
  unsigned long long contexts_made = 0;
  void* kernel_library = nullptr;
  void* scratch_memory = nullptr;
};

/// Returns the driver; nullptr when the library is being unloaded. The caller must hold the mutex.
Driver* current_driver();
/// Replaces the driver by a new one.
void reset_driver();

/// True if the address is, was or may become device memory. Host memory never has such an address.
bool is_device_address(const Driver& driver, const void* address);

/// If commands may not use the memory (fake_cuda_forbid_opened), counts a misuse and returns true.
bool is_forbidden(Driver& driver, const Allocation& allocation);

/// True if commands of `device` may use the memory.
bool may_access(const Device& device, const Allocation& allocation);

/// Adds a command to a stream, in the order that CUDA defines for the NULL stream and blocking
/// streams. If the stream captures, adds a node to the capture instead, and returns a command that
/// has already run. `waits` is true if the command polls memory until another write, so its
/// duration is unknown.
CommandPtr enqueue(Driver& driver,
                   Stream& stream,
                   std::function<void(const Run&)> run,
                   std::vector<CommandPtr> after = {},
                   bool waits = false);

}  // namespace xylem::fake_cuda
