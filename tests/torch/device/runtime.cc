// SPDX-License-Identifier: Apache-2.0
#include "runtime.h"

#include <c10/util/Exception.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <vector>

namespace standin {
namespace {

constexpr int kMostDevices = 8;
constexpr std::size_t kPoolStreams = 32;
constexpr std::size_t kRound = 512;

thread_local c10::DeviceIndex device_of_thread = 0;
thread_local std::array<c10::StreamId, kMostDevices> streams_of_thread{};

c10::Device device_at(c10::DeviceIndex index) { return {c10::DeviceType::PrivateUse1, index}; }

CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

/// The CUDA driver. It is initialized at its first use, since a process must not fork after that.
class Driver {
 public:
  static Driver& get() {
    static auto& driver = *new Driver;  // Threads may use it until the process ends.
    return driver;
  }
  int count() const noexcept { return count_; }
  CUcontext context(c10::DeviceIndex device) {
    TORCH_CHECK(device >= 0 && device < count_, "there is no device ", int{device});
    const std::lock_guard lock(mutex_);
    CUcontext& context = contexts_.at(static_cast<std::size_t>(device));
    if (context == nullptr)
      must(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    return context;
  }

 private:
  Driver() {
    must(cuInit(0), "cuInit");
    must(cuDeviceGetCount(&count_), "cuDeviceGetCount");
    TORCH_CHECK(count_ <= kMostDevices, count_, " devices; at most ", kMostDevices);
  }

  int count_ = 0;
  std::mutex mutex_;
  std::array<CUcontext, kMostDevices> contexts_{};
};

/// A recorded event.
class Mark {
 public:
  explicit Mark(CUstream stream) {
    must(cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    must(cuEventRecord(event_, stream), "cuEventRecord");
  }
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;
  Mark(Mark&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Mark& operator=(Mark&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~Mark() {
    if (event_ != nullptr) cuEventDestroy(event_);
  }
  bool has_passed() const { return cuEventQuery(event_) != CUDA_ERROR_NOT_READY; }

 private:
  CUevent event_ = nullptr;
};

/// While an object exists, calls of this thread may allocate memory although a stream captures.
class RelaxedCapture {
 public:
  RelaxedCapture() { cuThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;
  ~RelaxedCapture() { cuThreadExchangeStreamCaptureMode(&mode_); }

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

struct Block {
  void* memory = nullptr;
  std::size_t bytes = 0;
  c10::DeviceIndex device = 0;
  c10::StreamId stream = 0;            ///< The stream for which it was allocated.
  std::set<c10::StreamId> recorded{};  ///< Other streams that use it.
  std::vector<Mark> awaited{};         ///< Set when the block is freed: positions of these streams.
  bool is_of_graph = false;            ///< A captured graph uses it.
};

class CachingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::DeviceIndex device = current_device();
    if (bytes == 0) return {nullptr, device_at(device)};
    use(device);
    const c10::Stream stream = current_stream(device);
    // No event can be queried during a capture.
    const bool is_of_graph = is_capturing(stream);
    if (!is_of_graph) reclaim();
    Block* const block = take((bytes + kRound - 1) / kRound * kRound, device, stream.id());
    block->is_of_graph = is_of_graph;
    constexpr unsigned char kJunk = 0xEE;
    must(cuMemsetD8Async(address(block->memory), kJunk, block->bytes, handle_of(stream)),
         "cuMemsetD8Async");
    return {block->memory, block, &CachingAllocator::free, device_at(device)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* target, const void* source, std::size_t bytes) const override {
    copy_within_device(target, source, bytes, current_device());
  }

  static bool is_own(const c10::DataPtr& memory) { return memory.get_deleter() == &free; }
  void record(Block& block, c10::StreamId stream) {
    const std::lock_guard lock(mutex_);
    if (stream != block.stream) block.recorded.insert(stream);
  }

 private:
  using Key = std::tuple<std::size_t, c10::DeviceIndex, c10::StreamId>;

  static void free(void* context) {
    static_cast<CachingAllocator&>(allocator()).give_back(context);
  }

  /// Makes blocks free whose recorded streams have passed them.
  void reclaim() {
    const std::lock_guard lock(mutex_);
    std::erase_if(awaiting_, [&](Block* block) {
      std::erase_if(block->awaited, [](const Mark& mark) { return mark.has_passed(); });
      if (!block->awaited.empty()) return false;
      free_[{block->bytes, block->device, block->stream}].push_back(block);
      return true;
    });
  }

  Block* take(std::size_t bytes, c10::DeviceIndex device, c10::StreamId stream) {
    const std::lock_guard lock(mutex_);
    std::vector<Block*>& blocks = free_[{bytes, device, stream}];
    if (!blocks.empty()) {
      Block* const block = blocks.back();
      blocks.pop_back();
      return block;
    }
    CUdeviceptr memory = 0;
    const RelaxedCapture relaxed;
    must(cuMemAlloc(&memory, bytes), "cuMemAlloc");
    return new Block{reinterpret_cast<void*>(memory), bytes, device, stream};
  }

  void give_back(void* context) {
    auto* const block = static_cast<Block*>(context);
    const std::lock_guard lock(mutex_);
    if (block->is_of_graph) return;
    if (block->recorded.empty()) {
      free_[{block->bytes, block->device, block->stream}].push_back(block);
      return;
    }
    use(block->device);
    for (const c10::StreamId stream : block->recorded) {
      block->awaited.emplace_back(reinterpret_cast<CUstream>(stream));
    }
    block->recorded.clear();
    awaiting_.push_back(block);
  }

  std::mutex mutex_;
  std::map<Key, std::vector<Block*>> free_;
  std::vector<Block*> awaiting_;
};

class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, c10::DeviceType::CPU};
    const std::size_t rounded = (bytes + kRound - 1) / kRound * kRound;
    const std::lock_guard lock(mutex_);
    std::vector<void*>& memories = free_[rounded];
    if (memories.empty()) {
      use(current_device());
      void* made = nullptr;
      must(cuMemHostAlloc(&made, rounded, CU_MEMHOSTALLOC_PORTABLE), "cuMemHostAlloc");
      sizes_.emplace(reinterpret_cast<std::uintptr_t>(made), rounded);
      memories.push_back(made);
    }
    void* const memory = memories.back();
    memories.pop_back();
    return {memory, memory, &PinnedAllocator::free, c10::DeviceType::CPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free; }
  void copy_data(void* target, const void* source, std::size_t bytes) const override {
    std::memcpy(target, source, bytes);
  }
  bool contains(const void* address) {
    const auto number = reinterpret_cast<std::uintptr_t>(address);
    const std::lock_guard lock(mutex_);
    const auto after = sizes_.upper_bound(number);
    return after != sizes_.begin() && number < std::prev(after)->first + std::prev(after)->second;
  }

 private:
  /// The memory can be reused at once, since no copy accesses it after this call.
  static void free(void* memory) {
    auto& self = static_cast<PinnedAllocator&>(pinned_allocator());
    const std::lock_guard lock(self.mutex_);
    self.free_[self.sizes_.at(reinterpret_cast<std::uintptr_t>(memory))].push_back(memory);
  }

  std::mutex mutex_;
  std::map<std::uintptr_t, std::size_t> sizes_;
  std::map<std::size_t, std::vector<void*>> free_;
};

/// Pinned memory for copies to devices. It is reused after its copy.
class Staging {
 public:
  void copy(void* target, const void* source, std::size_t bytes, CUstream stream) {
    const std::lock_guard lock(mutex_);
    while (!pending_.empty() && pending_.front().mark.has_passed()) {
      free_[pending_.front().bytes].push_back(pending_.front().memory);
      pending_.pop_front();
    }
    std::vector<void*>& memories = free_[bytes];
    void* memory = nullptr;
    if (memories.empty()) {
      must(cuMemHostAlloc(&memory, bytes, CU_MEMHOSTALLOC_PORTABLE), "cuMemHostAlloc");
    } else {
      memory = memories.back();
      memories.pop_back();
    }
    std::memcpy(memory, source, bytes);
    must(cuMemcpyAsync(address(target), address(memory), bytes, stream), "cuMemcpyAsync");
    pending_.push_back({memory, bytes, Mark(stream)});
  }

 private:
  struct Pending {
    void* memory;
    std::size_t bytes;
    Mark mark;
  };
  std::mutex mutex_;
  std::deque<Pending> pending_;
  std::map<std::size_t, std::vector<void*>> free_;
};

}  // namespace

void must(CUresult result, const char* function) {
  if (result == CUDA_SUCCESS) return;
  const char* text = "an unknown error";
  cuGetErrorString(result, &text);
  TORCH_CHECK(false, function, " failed: ", text);
}

int device_count() noexcept {
  try {
    return Driver::get().count();
  } catch (const std::exception&) {
    return 0;
  }
}

c10::DeviceIndex current_device() noexcept { return device_of_thread; }
void set_device(c10::DeviceIndex device) { device_of_thread = device; }

void use(c10::DeviceIndex device) {
  must(cuCtxSetCurrent(Driver::get().context(device)), "cuCtxSetCurrent");
}

c10::Stream current_stream(c10::DeviceIndex device) {
  if (device < 0) device = current_device();
  return c10::Stream(c10::Stream::UNSAFE, device_at(device),
                     streams_of_thread.at(static_cast<std::size_t>(device)));
}

c10::Stream exchange_stream(const c10::Stream& stream) {
  const c10::Stream before = current_stream(stream.device_index());
  streams_of_thread.at(static_cast<std::size_t>(stream.device_index())) = stream.id();
  return before;
}

c10::Stream stream_from_pool(c10::DeviceIndex device) {
  struct Pool {
    std::vector<CUstream> streams;
    std::size_t next = 0;
  };
  static std::mutex mutex;
  static auto& pools = *new std::array<Pool, kMostDevices>;
  if (device < 0) device = current_device();
  use(device);
  const std::lock_guard lock(mutex);
  Pool& pool = pools.at(static_cast<std::size_t>(device));
  if (pool.streams.size() < kPoolStreams) {
    CUstream made = nullptr;
    must(cuStreamCreateWithPriority(&made, CU_STREAM_NON_BLOCKING, 0),
         "cuStreamCreateWithPriority");
    pool.streams.push_back(made);
  }
  const CUstream stream = pool.streams[pool.next++ % kPoolStreams];
  return c10::Stream(c10::Stream::UNSAFE, device_at(device),
                     reinterpret_cast<c10::StreamId>(stream));
}

CUstream handle_of(const c10::Stream& stream) noexcept {
  return reinterpret_cast<CUstream>(stream.id());
}

bool is_capturing(const c10::Stream& stream) {
  use(stream.device_index());
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  must(cuStreamIsCapturing(handle_of(stream), &status), "cuStreamIsCapturing");
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

void begin_capture() {
  use(current_device());
  must(cuStreamBeginCapture(handle_of(current_stream(-1)), CU_STREAM_CAPTURE_MODE_GLOBAL),
       "cuStreamBeginCapture");
}

CUgraphExec end_capture() {
  CUgraph graph = nullptr;
  CUgraphExec made = nullptr;
  use(current_device());
  must(cuStreamEndCapture(handle_of(current_stream(-1)), &graph), "cuStreamEndCapture");
  must(cuGraphInstantiateWithFlags(&made, graph, 0), "cuGraphInstantiateWithFlags");
  return made;
}

void launch(CUgraphExec graph) {
  use(current_device());
  must(cuGraphLaunch(graph, handle_of(current_stream(-1))), "cuGraphLaunch");
}

c10::Allocator& allocator() {
  static auto& made = *new CachingAllocator;
  return made;
}

c10::Allocator& pinned_allocator() {
  static auto& made = *new PinnedAllocator;
  return made;
}

bool is_pinned(const void* address) {
  return static_cast<PinnedAllocator&>(pinned_allocator()).contains(address);
}

void record_stream(const c10::DataPtr& memory, const c10::Stream& stream) {
  if (!CachingAllocator::is_own(memory)) return;
  static_cast<CachingAllocator&>(allocator())
      .record(*static_cast<Block*>(memory.get_context()), stream.id());
}

void copy_to_host(void* target, const void* source, std::size_t bytes, c10::DeviceIndex device) {
  if (bytes == 0) return;
  use(device);
  const CUstream stream = handle_of(current_stream(device));
  must(cuMemcpyAsync(address(target), address(source), bytes, stream), "cuMemcpyAsync");
  must(cuStreamSynchronize(stream), "cuStreamSynchronize");
}

void copy_to_device(void* target, const void* source, std::size_t bytes, c10::DeviceIndex device) {
  static auto& staging = *new Staging;
  if (bytes == 0) return;
  use(device);
  staging.copy(target, source, bytes, handle_of(current_stream(device)));
}

void copy_within_device(void* target,
                        const void* source,
                        std::size_t bytes,
                        c10::DeviceIndex device) {
  if (bytes == 0) return;
  use(device);
  must(cuMemcpyAsync(address(target), address(source), bytes, handle_of(current_stream(device))),
       "cuMemcpyAsync");
}

}  // namespace standin
