// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "xylem/execution/compute.h"

namespace xylem::execution {

/// The CPU that drives the engine. Work is done when enqueue() returns. Where the work asks for
/// non-temporal stores, the pieces in which they write are chosen here.
class HostCompute final : public Compute {
 public:
  /// Does the work at once, like enqueue(), for callers that know that they have a HostCompute.
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
