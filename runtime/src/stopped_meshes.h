// SPDX-License-Identifier: Apache-2.0
//
// StoppedMeshes: the meshes of groups that have failed. Their streams are let go on until they have
// done what they were given.
#pragma once

#include "xylem/execution/mesh.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>
#include <vector>

namespace xylem::runtime {

class StoppedMeshes {
 public:
  /// Whether release() must be called again. Any thread may call this.
  bool has_any() const noexcept { return has_any_.load(std::memory_order_seq_cst); }

  // For the token holder only:
  void add(std::shared_ptr<execution::Mesh> mesh) {
    if (std::ranges::find(meshes_, mesh) != meshes_.end()) return;
    meshes_.push_back(std::move(mesh));
    has_any_ = true;
  }
  /// Lets waiting streams go on. Call it again and again. A mesh whose calls were captured stays as
  /// long as its group.
  void release() noexcept {
    if (meshes_.empty()) return;
    std::erase_if(meshes_,
                  [](const auto& mesh) { return mesh->release() || mesh.use_count() == 1; });
    has_any_ = !meshes_.empty();
  }

 private:
  std::vector<std::shared_ptr<execution::Mesh>> meshes_;
  std::atomic<bool> has_any_{false};
};

}  // namespace xylem::runtime
