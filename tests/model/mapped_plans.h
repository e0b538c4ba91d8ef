// SPDX-License-Identifier: Apache-2.0
//
// Hand-written plans over mapped memory: all_reduce by remote reads and by puts, with signals and
// waits. No planner makes such plans. They test that the verifier accepts correct ones and rejects
// wrong ones.
#pragma once

#include "xylem/collectives/builder.h"

#include <vector>

namespace xylem::collectives::model {

/// Returns the same chunks of the buffer of `rank`.
inline Chunks at(std::uint32_t rank, Chunks chunks) {
  chunks.rank = rank;
  return chunks;
}

/// After step `before`, signals every other rank. Returns the last signal.
inline void signal_all(Builder& plan, const Shape& shape, std::uint32_t rank, StepId before) {
  for (std::uint32_t peer = 0; peer < shape.ranks; ++peer) {
    if (peer == rank) continue;
    const StepId told = plan.signal(peer);
    if (before != kNone) plan.after(told, before);
  }
}

/// Waits for signal number `value` of every other rank.
inline std::vector<StepId> wait_all(Builder& plan,
                                    const Shape& shape,
                                    std::uint32_t rank,
                                    std::uint32_t value) {
  std::vector<StepId> waits;
  for (std::uint32_t peer = 0; peer < shape.ranks; ++peer) {
    if (peer != rank) waits.push_back(plan.wait(peer, value));
  }
  return waits;
}

inline void after_all(Builder& plan, StepId step, const std::vector<StepId>& before) {
  for (const StepId id : before) plan.after(step, id);
}

/// Each rank reads all inputs, and keeps the sum in scratch. When all ranks have read, it writes
/// its output.
inline Schedule read_inputs(const Shape& shape, std::uint32_t rank) {
  Builder plan("read_inputs", shape, rank, 1);
  signal_all(plan, shape, rank, kNone);
  const auto ready = wait_all(plan, shape, rank, 1);
  std::vector<Chunks> sources;
  for (std::uint32_t from = 0; from < shape.ranks; ++from) sources.push_back(at(from, input(0)));
  const Chunks sum = plan.add_scratch(0);
  const StepId reduced = plan.reduce(sum, sources, true);
  after_all(plan, reduced, ready);
  signal_all(plan, shape, rank, reduced);
  const auto read = wait_all(plan, shape, rank, 2);
  const StepId copied = plan.copy(output(0), sum);
  after_all(plan, copied, read);
  return std::move(plan).take();
}

/// Each rank copies its input into scratch. Then each rank sums the scratch of all ranks.
inline Schedule read_scratch(const Shape& shape, std::uint32_t rank) {
  Builder plan("read_scratch", shape, rank, 1);
  const Chunks published = plan.add_scratch(0);
  signal_all(plan, shape, rank, plan.copy(published, input(0)));
  const auto ready = wait_all(plan, shape, rank, 1);
  std::vector<Chunks> sources;
  for (std::uint32_t from = 0; from < shape.ranks; ++from) sources.push_back(at(from, published));
  const StepId reduced = plan.reduce(output(0), sources, true);
  after_all(plan, reduced, ready);
  signal_all(plan, shape, rank, reduced);
  wait_all(plan, shape, rank, 2);
  return std::move(plan).take();
}

/// Each rank puts its input into its own chunk of every other rank's scratch. Before that, the
/// owner of the scratch has signalled that the chunk is free.
inline Schedule put_inputs(const Shape& shape, std::uint32_t rank) {
  Builder plan("put_inputs", shape, rank, 1);
  std::vector<Chunks> slots;
  for (std::uint32_t from = 0; from < shape.ranks; ++from) slots.push_back(plan.add_scratch(0));
  signal_all(plan, shape, rank, kNone);
  for (std::uint32_t peer = 0; peer < shape.ranks; ++peer) {
    if (peer == rank) continue;
    const StepId open = plan.wait(peer, 1);
    const StepId written = plan.put(peer, slots[rank], input(0));
    plan.after(written, open);
    const StepId told = plan.signal(peer);
    plan.after(told, written);
  }
  plan.copy(slots[rank], input(0));
  const auto arrived = wait_all(plan, shape, rank, 2);
  const StepId reduced = plan.reduce(output(0), slots, true);
  after_all(plan, reduced, arrived);
  return std::move(plan).take();
}

}  // namespace xylem::collectives::model
