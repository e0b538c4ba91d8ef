// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "xylem/execution/compute.h"

namespace xylem::execution {

/// The CPU that drives the engine. Work is done when enqueue() returns. If the work requests
/// non-temporal stores, the result is written in pieces, whose size is chosen here.
class HostCompute final : public Compute {
 public:
  /// Does the work at once, like enqueue(), for callers that have a HostCompute.
  static void run(const ComputeWork& work) noexcept;

  std::uint32_t queues() const noexcept override { return 0; }
  Ticket enqueue(std::uint32_t /*queue*/,
                 const ComputeWork& work,
                 std::span<const Ticket> /*after*/) noexcept override {
    run(work);
    return {};
  }
  bool has_completed(Ticket /*ticket*/) noexcept override { return true; }
  void cancel(Ticket /*ticket*/) noexcept override {}
  void open(Ticket /*gate*/) noexcept override {}
  void forget(Ticket /*gate*/) noexcept override {}
  Status health() const override { return {}; }
};

}  // namespace xylem::execution
