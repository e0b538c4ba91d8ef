// SPDX-License-Identifier: Apache-2.0
#include "cuda/waiting_streams.h"

#include <algorithm>
#include <atomic>

namespace xylem::execution::cuda {

bool WaitingStreams::add(unsigned long long stream, std::uint64_t* word, std::uint64_t value) {
  const Lock lock(mutex_);
  std::erase_if(waits_, [](const Wait& wait) {
    return std::atomic_ref(*wait.word).load(std::memory_order_acquire) >= wait.value;
  });
  // Work of a stream runs in order, so its last wait is the last one to end.
  const auto own = std::ranges::find(waits_, stream, &Wait::stream);
  if (own != waits_.end()) {
    *own = {stream, word, value};
    return true;
  }
  if (waits_.size() >= most_) return false;
  waits_.push_back({stream, word, value});
  return true;
}

void WaitingStreams::forget(const std::uint64_t* word) noexcept {
  const Lock lock(mutex_);
  std::erase_if(waits_, [&](const Wait& wait) { return wait.word == word; });
}

}  // namespace xylem::execution::cuda
