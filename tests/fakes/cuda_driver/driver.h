// SPDX-License-Identifier: Apache-2.0
//
// The state of the driver: devices, contexts, streams, events and the kernels' library. One mutex
// guards all of it. Handles are numbers that are never used twice, and no addresses: a destroyed
// handle is recognised, and following one faults.
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

/// A number that no handle of any type has had.
std::uint64_t new_handle();

/// Streams have priorities from 0 to this. They share the hardware queues, whatever their priority.
inline constexpr int kGreatestPriority = -5;

struct Stream {
  std::uint64_t number = new_handle();  ///< Handles of default streams are not unique.
  CUstream handle = nullptr;
  Context* context = nullptr;
  Queue* queue = nullptr;  ///< Of its newest command.
  unsigned flags = 0;
  int priority = 0;
  CommandPtr last;     ///< Its newest command.
  CapturePtr capture;  ///< While it captures.
  std::size_t branch = 0;
  std::vector<NodePtr> newest;              ///< On which the next node depends.
  std::vector<CUgraphNode> newest_handles;  ///< As a caller asked for them.
  bool is_blocking() const noexcept { return (flags & CU_STREAM_NON_BLOCKING) == 0; }
};
using StreamPtr = std::shared_ptr<Stream>;

struct Event {
  Context* context = nullptr;
  unsigned flags = 0;
  CommandPtr record;  ///< The newest record of this process; nullptr if there was none.
  std::shared_ptr<SharedEvent> shared;  ///< Of events that processes share.
  bool was_opened = false;              ///< Another process exported it.
  CapturePtr capture;                   ///< The newest record was captured there,
  std::vector<NodePtr> captured;        ///< behind these nodes.
};

/// The primary context of a device.
struct Context {
  CUcontext handle = nullptr;
  unsigned long long id = 0;
  Device* device = nullptr;
  StreamPtr legacy;                              ///< The NULL stream.
  std::map<std::uint64_t, StreamPtr> own;        ///< CU_STREAM_PER_THREAD, by thread.
  std::vector<CommandPtr> of_destroyed_streams;  ///< The last commands of blocking streams.
  std::set<int> peers;                           ///< Devices whose memory it may access.
  unsigned flags = 0;
  /// The thread whose call holds back the calls of all others, or 0 (Call::hold_until_idle).
  std::uint64_t held_by = 0;
};

/// A memory pool. It keeps no freed memory.
struct Pool {
  CUmemoryPool handle = nullptr;
  Device* device = nullptr;
  std::set<int> accessors;  ///< Other devices that may access its memory.
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
  std::atomic<CUresult> lost{CUDA_SUCCESS};  ///< Why the device cannot be used any more.
  std::atomic<bool> is_ending{false};        ///< Its context is being destroyed.
  std::size_t memory_used = 0;
  std::shared_ptr<Pool> default_pool, pool;  ///< From their first use.
  std::vector<std::unique_ptr<Queue>> queues;
  /// The queue for what a stream (Stream::number) or a branch of a graph (0) is given: one that no
  /// other stream holds for long, if there is any, and of these the one with the fewest commands;
  /// among equals, another one each time.
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
  /// Called without the mutex.
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  void count_misuse(std::string_view function, std::string_view what);
  const execution::cuda::HostKernel* find_kernel(std::string_view name);
  /// Memory for kernels that reach an unknown address: they go on with it until their block ends.
  void* scratch();
  /// Removes memory, and gives its bytes back to its device and its pool.
  void remove(const AllocationPtr& allocation);
  std::shared_ptr<Context> make_context(Device& device);
  /// Waits until all commands of the device have been dropped. Needs the lock on the mutex.
  void destroy_context(Device& device, std::unique_lock<std::mutex>& lock);

  Settings settings;
  bool is_initialised = false;
  std::map<std::string, unsigned long, std::less<>> calls;
  unsigned long misuses = 0;
  int forbidden_process = 0;  ///< Commands may not use its memory.
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
  std::vector<CapturePtr> captures;  ///< Those under way.
  unsigned long long captures_made = 0;
  unsigned long long contexts_made = 0;
  void* kernel_library = nullptr;
  void* scratch_memory = nullptr;
};

/// The driver; nullptr when the library is being unloaded. Needs the mutex.
Driver* current_driver();
/// Replaces the driver by a new one.
void reset_driver();

/// True if the address is device memory, or was, or may become so: no address of host memory.
bool is_device_address(const Driver& driver, const void* address);

/// True if a command may not use the memory any more, which is then counted as a misuse.
bool is_forbidden(Driver& driver, const Allocation& allocation);

/// True if commands of `device` may use the memory.
bool may_access(const Device& device, const Allocation& allocation);

/// Adds a command to a stream, in the order that the rules for the NULL stream ask for. If the
/// stream captures, adds a node instead, and returns a command that has run. `waits`: for a word.
CommandPtr enqueue(Driver& driver,
                   Stream& stream,
                   std::function<void(const Run&)> run,
                   std::vector<CommandPtr> after = {},
                   bool waits = false);

}  // namespace xylem::fake_cuda
