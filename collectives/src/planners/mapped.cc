// SPDX-License-Identifier: Apache-2.0
//
// Plans over mapped memory, for ranks whose devices reach each other's scratch. They work in
// phases, each with a channel of its own. First, every rank copies what others need into its
// scratch, and signals them. Then it reads their scratch, and signals that it has read. Finally it
// waits until all others have read its scratch. So a call leaves scratch and counters free for the
// next call, and the steps can run one after the other, in list order, without a progress engine.
#include "planners/phases.h"
#include "xylem/collectives/planner.h"

#include <vector>

namespace xylem::collectives {
namespace {

constexpr std::string_view kName = "mapped";

/// A chunk of the scratch of `rank`.
Chunks at(std::uint32_t rank, std::uint32_t chunk) { return {Buffer::scratch, chunk, 1, rank}; }

/// The same chunk of all ranks' scratch, in rank order. If all ranks reduce these chunks, all
/// evaluate the same expression.
std::vector<Chunks> of_all(const Shape& shape, std::uint32_t chunk) {
  std::vector<Chunks> chunks;
  chunks.reserve(shape.ranks);
  for (std::uint32_t rank = 0; rank < shape.ranks; ++rank) chunks.push_back(at(rank, chunk));
  return chunks;
}

/// Adds `chunks` scratch chunks and copies the input to them, chunk by chunk. Input chunk c holds
/// block first_block + c, and is copied to the c-th new scratch chunk.
void publish(Phases& plan, std::uint32_t first_block, std::uint32_t chunks) {
  const Chunks published = plan.add_scratch(first_block, chunks);
  for (std::uint32_t c = 0; c < chunks; ++c) plan.copy(scratch(published.first + c), input(c));
}

Schedule one_shot(const Shape& shape, std::uint32_t rank) {
  Phases plan("mapped_one_shot", shape, rank, 1, 2);
  publish(plan, 0, 1);
  plan.signal_all(0);
  plan.wait_all(0);
  plan.reduce(output(0), of_all(shape, 0));
  plan.signal_all(1);
  plan.wait_all(1);
  return plan.take();
}

Schedule two_shot(const Shape& shape, std::uint32_t rank) {
  const std::uint32_t n = shape.ranks;
  Phases plan("mapped_two_shot", shape, rank, n, 3);
  publish(plan, 0, n);
  const Chunks sum = plan.add_scratch(rank);
  plan.signal_all(0);
  plan.wait_all(0);
  plan.reduce(sum, of_all(shape, rank));
  plan.signal_all(1);
  plan.copy(output(rank), sum);
  plan.wait_all(1);
  plan.for_others([&](std::uint32_t peer) { plan.copy(output(peer), at(peer, n)); });
  plan.signal_all(2);
  plan.wait_all(2);
  return plan.take();
}

Schedule reduce(const Shape& shape, std::uint32_t rank) {
  Phases plan(kName, shape, rank, 1, 2);
  publish(plan, 0, 1);
  if (rank != shape.root) {
    plan.signal(shape.root, 0);
    plan.wait(shape.root, 1);
    return plan.take();
  }
  plan.wait_all(0);
  plan.reduce(output(0), of_all(shape, 0));
  plan.signal_all(1);
  return plan.take();
}

Schedule broadcast(const Shape& shape, std::uint32_t rank) {
  Phases plan(kName, shape, rank, 1, 2);
  if (rank != shape.root) {
    plan.wait(shape.root, 0);
    plan.copy(output(0), at(shape.root, 0));
    plan.signal(shape.root, 1);
    return plan.take();
  }
  publish(plan, 0, 1);
  plan.signal_all(0);
  plan.copy(output(0), input(0));
  plan.wait_all(1);
  return plan.take();
}

Schedule gather(const Shape& shape, std::uint32_t rank) {
  Phases plan(kName, shape, rank, 0, 2);
  if (rank != shape.root) {
    publish(plan, rank, 1);
    plan.signal(shape.root, 0);
    plan.wait(shape.root, 1);
    return plan.take();
  }
  plan.copy(output(rank), input(0));
  plan.wait_all(0);
  plan.for_others([&](std::uint32_t peer) { plan.copy(output(peer), at(peer, 0)); });
  plan.signal_all(1);
  return plan.take();
}

Schedule scatter(const Shape& shape, std::uint32_t rank) {
  Phases plan(kName, shape, rank, 0, 2);
  if (rank != shape.root) {
    plan.wait(shape.root, 0);
    plan.copy(output(0), at(shape.root, rank));
    plan.signal(shape.root, 1);
    return plan.take();
  }
  publish(plan, 0, shape.ranks);
  plan.signal_all(0);
  plan.copy(output(0), scratch(rank));
  plan.wait_all(1);
  return plan.take();
}

Schedule all_gather(const Shape& shape, std::uint32_t rank) {
  Phases plan(kName, shape, rank, 0, 2);
  publish(plan, rank, 1);
  plan.signal_all(0);
  plan.copy(output(rank), scratch(0));
  plan.wait_all(0);
  plan.for_others([&](std::uint32_t peer) { plan.copy(output(peer), at(peer, 0)); });
  plan.signal_all(1);
  plan.wait_all(1);
  return plan.take();
}

Schedule reduce_scatter(const Shape& shape, std::uint32_t rank) {
  Phases plan(kName, shape, rank, 0, 2);
  publish(plan, 0, shape.ranks);
  plan.signal_all(0);
  plan.wait_all(0);
  plan.reduce(output(0), of_all(shape, rank));
  plan.signal_all(1);
  plan.wait_all(1);
  return plan.take();
}

Schedule all_to_all(const Shape& shape, std::uint32_t rank) {
  Phases plan(kName, shape, rank, 0, 2);
  publish(plan, rank * shape.ranks, shape.ranks);
  plan.signal_all(0);
  plan.copy(output(rank), scratch(rank));
  plan.wait_all(0);
  plan.for_others([&](std::uint32_t peer) { plan.copy(output(peer), at(peer, rank)); });
  plan.signal_all(1);
  plan.wait_all(1);
  return plan.take();
}

Schedule barrier(const Shape& shape, std::uint32_t rank) {
  Phases plan(kName, shape, rank, 0, 2);
  for (const std::uint8_t channel : {0, 1}) {
    plan.signal_all(channel);
    plan.wait_all(channel);
  }
  return plan.take();
}

constexpr Planner kPlanners[] = {
    {"mapped_one_shot", Collective::all_reduce,
     "Everyone reads everyone's input and sums in one pass: two signals.", one_shot},
    {"mapped_two_shot", Collective::all_reduce,
     "Everyone sums one part, and reads the other sums: three signals.", two_shot},
    {kName, Collective::reduce, "The root reads all inputs and sums in one pass.", reduce},
    {kName, Collective::broadcast, "Everyone reads from the root.", broadcast},
    {kName, Collective::gather, "The root reads from everyone.", gather},
    {kName, Collective::scatter, "Everyone reads from the root.", scatter},
    {kName, Collective::all_gather, "Everyone reads from everyone.", all_gather},
    {kName, Collective::reduce_scatter,
     "Everyone reads one part of all inputs and sums in one pass.", reduce_scatter},
    {kName, Collective::all_to_all, "Everyone reads from everyone.", all_to_all},
    {kName, Collective::barrier, "Everyone signals everyone, twice.", barrier},
};

}  // namespace

std::span<const Planner> mapped_planners() noexcept { return kPlanners; }

}  // namespace xylem::collectives
