// SPDX-License-Identifier: Apache-2.0
//
// Made-up devices for ranks that are threads. They compute on the CPU, but have their own memory,
// and complete work later, like real devices.
#pragma once

#include "fakes/delayed_compute.h"
#include "runtime/src/wires/compute_devices.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

namespace xylem::test {

inline constexpr Memory kDevice{MemoryKind::cuda, 0};
/// The stream of a made-up device. When a call is made on it, the stream's earlier work completes
/// at a random moment later.
inline constexpr Stream kStream{nullptr, kDevice};

/// One made-up device for each rank, and memory of this device.
class MadeUpDevices {
 public:
  explicit MadeUpDevices(std::uint32_t ranks,
                         std::uint64_t fault_after = 0,
                         std::size_t bytes = std::size_t{64} << 20)
      : fault_after_(fault_after) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) memories_.emplace_back(bytes);
  }
  MadeUpDevices(const MadeUpDevices&) = delete;
  MadeUpDevices& operator=(const MadeUpDevices&) = delete;
  /// Destroy this object only after all ranks have ended. The destructor checks that forget() was
  /// called for every gate, and open() for every gate at which a stream waits for a call to end. It
  /// checks nothing after never_finish().
  ~MadeUpDevices() {
    for (const auto& compute : made_) {
      if (!finishes_) break;
      EXPECT_EQ(compute->gates_forgotten(), compute->gates_made());
      EXPECT_TRUE(compute->has_opened_all_ends());
    }
  }

  /// In devices made after this call, gates stay closed until the test opens them. Without this
  /// call, the devices open their gates themselves.
  void keep_gates_closed() noexcept { opens_gates_ = false; }
  /// Like keep_gates_closed(). In addition, work behind a closed gate never completes, not even if
  /// the work is cancelled.
  void never_finish() noexcept { opens_gates_ = finishes_ = false; }
  /// The devices of a rank, for RankOptions::devices. A rank's device has one to four queues.
  std::vector<runtime::ComputeDevice> of_rank(std::uint32_t rank) {
    auto compute = std::make_shared<DelayedCompute>(
        memories_[rank], DelayedComputeOptions{.seed = rank + 1,
                                               .queues = 1 + rank % 4,
                                               .keeps_cancelled = !finishes_,
                                               .fault_after = rank == 0 ? fault_after_ : 0,
                                               .opens_gates = opens_gates_});
    const std::lock_guard lock(mutex_);
    made_.push_back(compute);
    return {{kDevice, compute}};
  }
  DeviceMemory& memory(std::uint32_t rank) { return memories_[rank]; }

 private:
  std::uint64_t fault_after_;
  bool opens_gates_ = true, finishes_ = true;
  std::mutex mutex_;
  std::vector<std::shared_ptr<DelayedCompute>> made_;
  std::deque<DeviceMemory> memories_;
};

}  // namespace xylem::test
