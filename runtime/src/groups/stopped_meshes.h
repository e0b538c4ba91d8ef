// SPDX-License-Identifier: Apache-2.0
//
// StoppedMeshes: the meshes of groups that have failed. Their streams are let go on until they have
// done what they were given.
#pragma once

#include "xylem/base/clock.h"
#include "xylem/execution/mesh.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

namespace xylem::runtime {

class StoppedMeshes {
 public:
  // Any thread may call these functions:
  /// Whether release() must be called again.
  bool has_any() const noexcept { return has_any_.load(std::memory_order_seq_cst); }
  /// Whether a stream still has calls, so that release() must be called again soon.
  bool are_streams_waiting() const noexcept { return are_waiting_.load(std::memory_order_seq_cst); }

  // For the token holder only:
  void add(std::shared_ptr<execution::Mesh> mesh) {
    if (std::ranges::find(meshes_, mesh) == meshes_.end()) meshes_.push_back(std::move(mesh));
    has_any_ = are_waiting_ = true;
  }
  /// Lets waiting streams go on. A mesh whose calls were captured stays as long as its group, since
  /// graphs may be launched again; it is released less often.
  void release() noexcept {
    if (meshes_.empty()) return;
    const auto now = Clock::now();
    if (!are_waiting_ && now < next_) return;
    next_ = now + kForGraphs;
    bool are_waiting = false;
    std::erase_if(meshes_, [&](const auto& mesh) {
      if (!mesh->release()) {
        are_waiting = true;
        return false;
      }
      return !mesh->has_graphs() || mesh.use_count() == 1;
    });
    are_waiting_ = are_waiting;
    has_any_ = !meshes_.empty();
  }

 private:
  static constexpr std::chrono::milliseconds kForGraphs{5};

  std::vector<std::shared_ptr<execution::Mesh>> meshes_;
  Clock::time_point next_{};
  std::atomic<bool> has_any_{false}, are_waiting_{false};
};

}  // namespace xylem::runtime
