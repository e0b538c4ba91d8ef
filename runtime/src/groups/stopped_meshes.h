// SPDX-License-Identifier: Apache-2.0
//
// StoppedMeshes: the meshes of groups that have failed. Each turn releases the streams that are
// blocked in calls on these meshes, until the streams have completed all enqueued calls.
#pragma once

#include "progress/token.h"
#include "progress/work_source.h"
#include "xylem/base/clock.h"
#include "xylem/execution/mesh.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

namespace xylem::runtime {

class StoppedMeshes final : public WorkSource {
 public:
  void add(Token /*token*/, std::shared_ptr<execution::Mesh> mesh) {
    if (std::ranges::find(meshes_, mesh) == meshes_.end()) meshes_.push_back(std::move(mesh));
    are_waiting_ = true;
    has_any_.store(true, std::memory_order_seq_cst);
  }
  /// Releases blocked streams. A mesh whose calls were captured in graphs stays here as long as its
  /// group exists, since the graphs may be launched again. Its blocked streams are then released
  /// only once every kForGraphs.
  unsigned turn(Token /*token*/) noexcept override {
    if (meshes_.empty()) return 0;
    const auto now = Clock::now();
    if (!are_waiting_ && now < next_) return 0;
    next_ = now + kForGraphs;
    are_waiting_ = false;
    std::erase_if(meshes_, [&](const auto& mesh) {
      const bool has_drained = mesh->release();
      are_waiting_ = are_waiting_ || !has_drained;
      return has_drained && (!mesh->has_graphs() || mesh.use_count() == 1);
    });
    has_any_.store(!meshes_.empty(), std::memory_order_seq_cst);
    return 0;
  }
  Need need() const noexcept override {
    return has_any_.load(std::memory_order_seq_cst) ? Need::turns : Need::nothing;
  }
  /// True while a stream has enqueued calls that are not complete.
  bool needs_polling(Token /*token*/) const noexcept override { return are_waiting_; }

 private:
  static constexpr std::chrono::milliseconds kForGraphs{5};

  std::vector<std::shared_ptr<execution::Mesh>> meshes_;
  Clock::time_point next_{};
  bool are_waiting_ = false;
  std::atomic<bool> has_any_{false};
};

}  // namespace xylem::runtime
