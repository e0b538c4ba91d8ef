// SPDX-License-Identifier: Apache-2.0
#include "fakes/cuda_driver/launch.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>

namespace xylem::fake_cuda {
namespace {

/// Bytes of another device or process to which a launch writes. The launch writes to a copy, which
/// has the same distance from a boundary of 4 KiB, until they become visible (HostBlock::fence).
class Target {
 public:
  Target(AllocationPtr allocation, const void* address, std::size_t bytes, bool by_all)
      : allocation_(std::move(allocation)),
        address_(address),
        bytes_(bytes),
        by_all_(by_all),
        copy_(bytes + kPage) {
    std::memcpy(written(), allocation_->view(address_), bytes_);
  }

  bool is(const void* address, std::size_t bytes) const noexcept {
    return address == address_ && bytes == bytes_;
  }
  bool is_by_all() const noexcept { return by_all_; }
  std::byte* written() noexcept {
    const auto to = reinterpret_cast<std::uintptr_t>(address_) % kPage;
    const auto at = reinterpret_cast<std::uintptr_t>(copy_.data()) % kPage;
    return copy_.data() + (to + kPage - at) % kPage;
  }
  void publish() { std::memcpy(allocation_->view(address_), written(), bytes_); }

 private:
  static constexpr std::size_t kPage = 4096;

  AllocationPtr allocation_;
  const void* address_;
  std::size_t bytes_;
  bool by_all_;
  std::vector<std::byte> copy_;
};

/// The kernel that this thread runs. It caches the allocations that the kernel has accessed, so
/// that few accesses lock the mutex.
struct Running {
  Running(const Run& of, std::uint64_t block_count) : run(of), blocks(block_count) {}

  const Run& run;
  const std::uint64_t blocks;  ///< Of the launch.
  std::array<AllocationPtr, 8> reached;
  std::size_t next = 0;
  std::vector<std::unique_ptr<Target>> targets;  ///< What they contain is not visible yet.
  std::vector<std::uint32_t*> cleared;           ///< Words that are still to be cleared.
  /// The number of blocks that have called fence() since they have begun to write to `targets`.
  std::uint64_t fenced = 0;
  bool has_fenced = false;   ///< This block is one of them.
  bool needs_fence = false;  ///< This block has waited since its last fence.
  bool has_failed = false;
};
thread_local Running* running = nullptr;

bool is_elsewhere(const Allocation& allocation) noexcept {
  return !allocation.is_on_host() && (allocation.kind == MemoryKind::opened ||
                                      allocation.device != running->run.device().ordinal);
}

/// The allocation that contains an address, valid until the next call. Null, and the launch fails,
/// if the kernel cannot access it.
const AllocationPtr& find(const void* address) {
  Running& kernel = *running;
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  for (const AllocationPtr& allocation : kernel.reached) {
    if (allocation != nullptr && allocation->contains(at)) return allocation;
  }
  const Device& device = kernel.run.device();
  const std::lock_guard lock(driver_mutex());
  AllocationPtr allocation = device.driver.memory.find(address);
  if (allocation == nullptr || !allocation->is_ready || !may_access(device, *allocation) ||
      is_forbidden(device.driver, *allocation)) {
    kernel.has_failed = true;
    static const AllocationPtr kNone;
    return kNone;
  }
  AllocationPtr& reached = kernel.reached[kernel.next++ % kernel.reached.size()];
  reached = std::move(allocation);
  return reached;
}

void* scratch() {
  const std::lock_guard lock(driver_mutex());
  return running->run.device().driver.scratch();
}

void* reach(const void* address) {
  const AllocationPtr& allocation = find(address);
  if (allocation == nullptr) return scratch();
  if (running->needs_fence && is_elsewhere(*allocation)) {
    const std::lock_guard lock(driver_mutex());
    running->run.device().driver.count_misuse(
        "a kernel", "it accessed memory of another device after a wait without a fence");
  }
  return allocation->view(address);
}

void* reach_target(const void* address, std::size_t bytes, bool by_all) {
  const AllocationPtr& allocation = find(address);
  if (allocation == nullptr || !is_elsewhere(*allocation)) return reach(address);
  if (by_all && std::exchange(running->has_fenced, false)) --running->fenced;
  for (const auto& target : running->targets) {
    if (target->is(address, bytes)) return target->written();
  }
  running->targets.push_back(std::make_unique<Target>(allocation, address, bytes, by_all));
  return running->targets.back()->written();
}

void fence() {
  Running& kernel = *running;
  kernel.needs_fence = false;
  for (std::uint32_t* const word : kernel.cleared) __atomic_store_n(word, 0U, __ATOMIC_RELEASE);
  kernel.cleared.clear();
  if (!std::exchange(kernel.has_fenced, true)) ++kernel.fenced;
  std::erase_if(kernel.targets, [&](const auto& target) {
    const bool is_visible = !target->is_by_all() || kernel.fenced == kernel.blocks;
    if (is_visible) target->publish();
    return is_visible;
  });
}

void clear(std::uint32_t* word) { running->cleared.push_back(word); }

std::uint32_t await(const std::uint32_t* word) {
  running->needs_fence = true;
  for (unsigned tries = 0; !running->run.is_aborted(); ++tries) {
    const std::uint32_t value = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    if (value != 0) return value;
    running->run.pause(tries);
  }
  return ~std::uint32_t{0};
}

/// The end of a launch makes visible what its blocks have written without a fence, late enough that
/// a device that waits for a flag of this launch misses it. A launch that is aborted publishes
/// nothing more: its targets may have been freed.
void end(Running& kernel) {
  if (kernel.has_failed || kernel.run.is_aborted()) kernel.targets.clear();
  if (!kernel.targets.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  kernel.fenced = kernel.blocks;
  kernel.has_fenced = true;
  fence();
}

}  // namespace

void run_kernel(const Launch& launch, const Run& run) {
  const Watched watched(run, launch.kernel->name, 0);
  Running kernel(run, launch.blocks);
  running = &kernel;
  std::vector<std::byte> parameters = launch.parameters;
  void* pointers[] = {parameters.data()};
  execution::cuda::HostBlock block;
  block.blocks = launch.blocks;
  block.threads = launch.threads;
  block.reach = reach;
  block.reach_target = reach_target;
  block.fence = fence;
  block.clear = clear;
  block.await = await;
  std::vector<std::uint64_t> order(launch.blocks);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), run.random());
  for (const std::uint64_t index : order) {
    if (kernel.has_failed || run.is_aborted()) break;
    kernel.has_fenced = kernel.needs_fence = false;
    block.index = index;
    launch.kernel->run(pointers, block);
    block.is_first = false;
  }
  end(kernel);
  running = nullptr;
  if (kernel.has_failed) run.fail(CUDA_ERROR_ILLEGAL_ADDRESS);
}

}  // namespace xylem::fake_cuda
