// SPDX-License-Identifier: Apache-2.0
//
// Completions: calls `done` of operations that have completed. UCX normally completes requests
// within ucp_worker_progress(), where `done` may be called. A request can also complete while
// another operation is being posted; `done` is then deferred until the transport's progress().
#pragma once

#include "xylem/transport/transport.h"

#include <utility>
#include <vector>

namespace xylem::transport::ucx {

class Completions {
 public:
  /// While an object of this class exists, completions are deferred.
  class Posting {
   public:
    explicit Posting(Completions& completions) noexcept
        : is_posting_(&completions.is_posting_), outer_(std::exchange(*is_posting_, true)) {}
    Posting(const Posting&) = delete;
    Posting& operator=(const Posting&) = delete;
    ~Posting() { *is_posting_ = outer_; }

   private:
    bool* is_posting_;
    bool outer_;
  };

  /// Completes an operation whose result has been set.
  void complete(Operation& operation) {
    if (is_posting_) return defer(operation);
    operation.done(operation);
  }
  void defer(Operation& operation) { deferred_.push_back(&operation); }
  bool has_deferred() const noexcept { return !deferred_.empty(); }
  /// Completes the deferred operations; returns their number. Operations that are deferred during
  /// this call wait for the next call.
  unsigned complete_deferred() {
    completing_.swap(deferred_);
    for (Operation* operation : completing_) operation->done(*operation);
    const auto count = static_cast<unsigned>(completing_.size());
    completing_.clear();
    return count;
  }

 private:
  bool is_posting_ = false;
  std::vector<Operation*> deferred_, completing_;
};

}  // namespace xylem::transport::ucx
