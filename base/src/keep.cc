// SPDX-License-Identifier: Apache-2.0
#include "xylem/base/keep.h"

#include <atomic>
#include <utility>

namespace xylem {

void keep_until_exit(std::shared_ptr<const void> object) {
  struct Kept {
    std::shared_ptr<const void> object;
    Kept* next = nullptr;
  };
  static std::atomic<Kept*> first{nullptr};
  auto* const kept = new Kept{std::move(object)};  // NOLINT(cppcoreguidelines-owning-memory)
  kept->next = first.load(std::memory_order_relaxed);
  while (!first.compare_exchange_weak(kept->next, kept, std::memory_order_release,
                                      std::memory_order_relaxed)) {
  }
}

}  // namespace xylem
