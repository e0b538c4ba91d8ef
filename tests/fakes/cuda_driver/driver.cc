// SPDX-License-Identifier: Apache-2.0
#include "fakes/cuda_driver/driver.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <utility>

namespace xylem::fake_cuda {
namespace {

constexpr std::size_t kScratchBytes = std::size_t{16} << 30;

/// The mutex guards this pointer. It is a plain pointer: after the driver has been destroyed, calls
/// find NULL.
constinit Driver* the_driver = nullptr;

void replace_driver(std::unique_ptr<Driver> by) {
  std::unique_ptr<Driver> before;
  {
    const std::lock_guard lock(driver_mutex());
    before.reset(the_driver);
    the_driver = by.release();
  }
}

/// Creates the driver when the library is loaded. Destroys it when the library is unloaded or the
/// process ends.
struct Lifetime {
  Lifetime() { replace_driver(std::make_unique<Driver>(read_settings())); }
  Lifetime(const Lifetime&) = delete;
  Lifetime& operator=(const Lifetime&) = delete;
  ~Lifetime() { replace_driver(nullptr); }
} const kLifetime;

void add_unfinished(std::vector<CommandPtr>& commands, const CommandPtr& command) {
  if (command != nullptr && !command->is_done) commands.push_back(command);
}

/// Adds the newest commands of the blocking streams of a context, for which a command of the NULL
/// stream must wait.
void add_blocking_streams(const Driver& driver, Context& context, std::vector<CommandPtr>& after) {
  for (const auto& [handle, stream] : driver.streams) {
    if (stream->context == &context && stream->is_blocking()) add_unfinished(after, stream->last);
  }
  for (const auto& [thread, stream] : context.own) add_unfinished(after, stream->last);
  for (const CommandPtr& command : context.of_destroyed_streams) add_unfinished(after, command);
  context.of_destroyed_streams.clear();
}

}  // namespace

Driver* current_driver() { return the_driver; }

void reset_driver() { replace_driver(std::make_unique<Driver>(read_settings())); }

std::uint64_t new_handle() {
  // The least significant bits are zero. Addresses of a process never have these high bits.
  static std::uint64_t made = 0;
  return 0xfa00'0000'0000'0000U | (++made << 8);
}

Device::Device(Driver& of, int number) : driver(of), ordinal(number) {
  const Settings& settings = driver.settings;
  const std::uint64_t seed = settings.seed * 1000 + static_cast<std::uint64_t>(number) * 100;
  for (unsigned i = 0; i < settings.queues; ++i) {
    queues.push_back(std::make_unique<Queue>(*this, seed + i, settings.delay_us));
  }
}

Device::~Device() {
  {
    const std::lock_guard lock(driver_mutex());
    is_ending = true;
    for (const auto& queue : queues) queue->stop();
    driver_changed().notify_all();
  }
  queues.clear();
}

Queue& Device::best_queue(std::uint64_t stream) {
  ++queues_chosen;
  Queue* best = nullptr;
  bool is_best_held = true;
  for (std::size_t i = 0; i < queues.size(); ++i) {
    Queue& queue = *queues[(queues_chosen + i) % queues.size()];
    const bool is_held = queue.is_held_by_others(stream);
    if (best == nullptr ||
        std::pair(is_held, queue.length()) < std::pair(is_best_held, best->length())) {
      best = &queue;
      is_best_held = is_held;
    }
  }
  return *best;
}

void Device::lose(CUresult result) {
  if (lost == CUDA_SUCCESS) lost = result;
  driver_changed().notify_all();
}

std::vector<CommandPtr> Device::newest_commands() const {
  std::vector<CommandPtr> commands;
  for (const auto& queue : queues) add_unfinished(commands, queue->last());
  return commands;
}

Driver::Driver(Settings from_environment) : settings(std::move(from_environment)) {
  for (unsigned i = 0; i < settings.devices; ++i) {
    devices.push_back(std::make_unique<Device>(*this, static_cast<int>(i)));
  }
}

Driver::~Driver() {
  while (!captures.empty()) end_capture(*this, CapturePtr(captures.back()));
  devices.clear();
  if (kernel_library != nullptr) dlclose(kernel_library);
  if (scratch_memory != nullptr) munmap(scratch_memory, kScratchBytes);
}

void* Driver::scratch() {
  if (scratch_memory == nullptr) {
    // Pages use no memory until they are written.
    scratch_memory = mmap(nullptr, kScratchBytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  return scratch_memory;
}

void Driver::count_misuse(std::string_view function, std::string_view what) {
  ++misuses;
  last_misuse = std::string(function) + ": " + std::string(what);
}

const execution::cuda::HostKernel* Driver::find_kernel(std::string_view name) {
  if (settings.kernels.empty()) return nullptr;
  if (kernel_library == nullptr) {
    kernel_library = dlopen(settings.kernels.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  if (kernel_library == nullptr) {
    count_misuse("FAKE_CUDA_KERNELS", dlerror());
    return nullptr;
  }
  const auto list = reinterpret_cast<decltype(&execution::cuda::xylem_host_kernels)>(
      dlsym(kernel_library, "xylem_host_kernels"));
  if (list == nullptr) return nullptr;
  std::size_t count = 0;
  const execution::cuda::HostKernel* kernels_of_library = list(&count);
  for (std::size_t i = 0; i < count; ++i) {
    if (name == kernels_of_library[i].name) return &kernels_of_library[i];
  }
  return nullptr;
}

void Driver::remove(const AllocationPtr& allocation) {
  if (allocation->kind == MemoryKind::device) {
    devices[static_cast<std::size_t>(allocation->device)]->memory_used -= allocation->bytes;
  }
  if (allocation->pool != nullptr) allocation->pool->used -= allocation->bytes;
  memory.remove(allocation);
}

std::shared_ptr<Context> Driver::make_context(Device& device) {
  auto context = std::make_shared<Context>();
  context->id = ++contexts_made;
  context->device = &device;
  context->legacy = std::make_shared<Stream>();
  context->legacy->handle = CU_STREAM_LEGACY;
  context->legacy->context = context.get();
  context->handle = contexts.add(context);
  return context;
}

void Driver::destroy_context(Device& device, std::unique_lock<std::mutex>& lock) {
  const std::shared_ptr<Context> context = device.context;
  if (!device.newest_commands().empty()) {
    count_misuse("cuDevicePrimaryCtxRelease_v2", "the context has commands that have not ended");
  }
  device.is_ending = true;
  driver_changed().notify_all();
  driver_changed().wait(lock, [&] { return device.newest_commands().empty(); });
  device.is_ending = false;
  for (const CapturePtr& capture : captures_in(*this, *context)) drop_capture(*this, capture);
  streams.remove_if([&](const Stream& stream) { return stream.context == context.get(); });
  events.remove_if([&](const Event& event) { return event.context == context.get(); });
  for (const AllocationPtr& allocation : memory.find_all_of(context->handle)) remove(allocation);
  contexts.remove(context->handle);
  device.context = nullptr;
}

bool is_device_address(const Driver& driver, const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  return driver.memory.was_freed(address) || driver.reservations.was_freed(at) ||
         driver.reservations.find(at) != nullptr;
}

bool is_forbidden(Driver& driver, const Allocation& allocation) {
  if (allocation.kind != MemoryKind::opened || allocation.key.pid != driver.forbidden_process) {
    return false;
  }
  driver.count_misuse("a command", "it uses memory of a process that is forbidden");
  return true;
}

bool may_access(const Device& device, const Allocation& allocation) {
  if (allocation.kind == MemoryKind::mapped) return allocation.accessors.contains(device.ordinal);
  if (allocation.is_on_host() || allocation.kind == MemoryKind::managed) return true;
  if (allocation.pool != nullptr && allocation.device != device.ordinal) {
    return allocation.pool->accessors.contains(device.ordinal);
  }
  if (allocation.device == device.ordinal || allocation.opened_by == device.ordinal) return true;
  return device.context != nullptr && device.context->peers.contains(allocation.device);
}

namespace {

/// Adds a command to a queue. This is the queue of the stream's previous command, unless another
/// stream holds this queue for a long time.
void push(Stream& stream, const CommandPtr& command) {
  const bool is_idle = stream.last == nullptr || stream.last->is_done;
  if (is_idle || stream.queue->is_held_by_others(stream.number)) {
    Queue& best = stream.context->device->best_queue(stream.number);
    if (!is_idle && &best != stream.queue) command->after.push_back(stream.last);
    stream.queue = &best;
  }
  stream.last = command;
  stream.queue->push(command);
}

}  // namespace

CommandPtr enqueue(Driver& driver,
                   Stream& stream,
                   std::function<void(const Run&)> run,
                   std::vector<CommandPtr> after,
                   bool waits) {
  if (stream.capture != nullptr) {
    add_node(stream, std::move(run), waits);
    auto nothing = std::make_shared<Command>();
    nothing->is_done = true;
    return nothing;
  }
  Context& context = *stream.context;
  if (&stream == context.legacy.get()) {
    add_blocking_streams(driver, context, after);
  } else if (stream.is_blocking()) {
    add_unfinished(after, context.legacy->last);
  }
  auto command = std::make_shared<Command>();
  command->run = std::move(run);
  command->after = std::move(after);
  command->stream = stream.number;
  command->waits = waits;
  push(stream, command);
  return command;
}

}  // namespace xylem::fake_cuda
