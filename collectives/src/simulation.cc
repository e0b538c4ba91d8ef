// SPDX-License-Identifier: Apache-2.0
//
// Simulation in virtual time. A slice starts as soon as all slices for which it waits have
// completed, and then queues for its resources. Dispatch, copies and reductions need the core; if a
// device computes, copies and reductions need the core only while it enqueues them. A message needs
// the ports of the network (simulated_network.h). If ranks share cores, the cores also move the
// messages within the host, and switching from rank to rank takes time. Rings of scratch are
// assumed to be large enough, so lag edges are ignored.
#include "simulation.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace xylem::collectives {
namespace {

using verifier::Global;
using verifier::World;

bool is_recv(const World& world, Global id) { return world.step(id).kind == StepKind::recv; }

// A message is one task, identified by its send.
Global task_of(const World& world, Global id) {
  return is_recv(world, id) ? world.partner[id] : id;
}

template <typename Visit>
void for_each_dependency(const World& world, Visit&& visit) {
  for (Global id = 0; id < world.owner.size(); ++id) {
    const Global task = task_of(world, id);
    const Schedule& schedule = world.schedule(id);
    const Global base = world.first[world.owner[id]];
    for (const StepId before : schedule.predecessors_of(world.step(id))) {
      visit(task_of(world, base + before), task);
    }
    if (world.step(id).kind == StepKind::wait) visit(world.signalled_by[id], task);
  }
}

}  // namespace

std::uint64_t step_bytes(const Schedule& schedule, const Layout& layout, const Step& step) {
  if (step.chunk_count == 0) return 0;
  const bool by_source = step.kind == StepKind::send || step.kind == StepKind::put;
  const Operand& operand = schedule.operands[by_source ? step.first_source : step.target];
  return layout.extent(operand.buffer, operand.chunk, step.chunk_count).bytes;
}

Dependencies::Dependencies(const World& world) {
  const std::size_t steps = world.owner.size();
  first_successor.assign(steps + 2, 0);
  for_each_dependency(world, [&](Global before, Global) { ++first_successor[before + 2]; });
  for (std::size_t i = 2; i < first_successor.size(); ++i)
    first_successor[i] += first_successor[i - 1];
  successors.resize(first_successor.back());
  for_each_dependency(
      world, [&](Global before, Global task) { successors[first_successor[before + 1]++] = task; });
  lane_next.assign(steps, kNone);
  lane_previous.assign(steps, kNone);
  for (const auto& [earlier, later] : world.lanes) {
    lane_next[task_of(world, earlier)] = task_of(world, later);
    lane_previous[task_of(world, later)] = task_of(world, earlier);
  }
}

Simulation::Simulation(const World& world,
                       const Dependencies& dependencies,
                       const CostModel& model,
                       const Counts& counts)
    : world_(world),
      dependencies_(dependencies),
      model_(model),
      written_(world.ranks.size()),
      devices_(world.ranks.size()),
      cores_(model, static_cast<std::uint32_t>(world.ranks.size())),
      network_(model, world.ranks.size()) {
  tasks_.reserve(world.owner.size());
  for (const Schedule& schedule : world.ranks) {
    const Layout layout(schedule, counts);
    for (const Step& step : schedule.steps) {
      const std::uint64_t bytes = step_bytes(schedule, layout, step);
      const std::uint64_t slices = (bytes + model.slice_bytes - 1) / model.slice_bytes;
      Task& task = tasks_.emplace_back();
      task.bytes = static_cast<double>(bytes);
      task.slices = static_cast<std::uint32_t>(std::max<std::uint64_t>(slices, 1));
    }
  }
  const bool is_exchanged =
      std::ranges::all_of(tasks_, [](const Task& task) { return task.slices == 1; }) &&
      std::ranges::adjacent_find(model.host, std::not_equal_to()) == model.host.end() &&
      std::ranges::all_of(world.ranks, &is_exchange);
  step_us_ = is_exchanged ? model.exchange_step_us : model.step_us;
}

double Simulation::run() {
  for (Global id = 0; id < world_.owner.size(); ++id) {
    if (!is_recv(world_, id)) try_start(id);
  }
  while (!events_.empty()) {
    const Event event = events_.top();
    events_.pop();
    now_ = event.time;
    switch (event.stage) {
      case Stage::departed: arrive(event.step, event.bytes); break;
      case Stage::arrived: receive(event.step, event.bytes); break;
      case Stage::complete: complete(event.step); break;
    }
  }
  return now_;
}

void Simulation::complete(Global step) {
  ++tasks_[step].done;
  tasks_[step].ended = now_;
  for (std::uint32_t i = dependencies_.first_successor[step];
       i < dependencies_.first_successor[step + 1]; ++i) {
    try_start(dependencies_.successors[i]);
  }
}

void Simulation::try_start(Global step) {
  Task& task = tasks_[step];
  while (task.started < task.slices && is_ready(step)) {
    start_slice(step);
    if (++task.started == task.slices && dependencies_.lane_next[step] != kNone) {
      try_start(dependencies_.lane_next[step]);
    }
  }
}

bool Simulation::is_ready(Global step) const {
  const std::uint32_t slice = tasks_[step].started;
  const Global previous = dependencies_.lane_previous[step];
  if (slice == 0 && previous != kNone && tasks_[previous].started < tasks_[previous].slices)
    return false;
  const auto edges_met = [&](Global id) {
    const std::uint32_t rank = world_.owner[id];
    const Pipeline& pipeline = world_.pipelines[rank];
    const StepId local = id - world_.first[rank];
    for (std::uint32_t e = pipeline.first_edge[local]; e < pipeline.first_edge[local + 1]; ++e) {
      const Edge& edge = pipeline.edges[e];
      const Task& before = tasks_[task_of(world_, world_.first[rank] + edge.before)];
      if (edge.kind == EdgeKind::slice && before.done <= slice) return false;
      if (edge.kind == EdgeKind::whole && before.done < before.slices) return false;
    }
    return true;
  };
  const bool waits = world_.step(step).kind == StepKind::wait;
  if (waits && tasks_[world_.signalled_by[step]].done == 0) return false;
  const Global receive = world_.partner[step];
  return edges_met(step) && (receive == kNone || edges_met(receive));
}

double Simulation::slice_bytes(const Task& task) const {
  const auto slice = static_cast<double>(model_.slice_bytes);
  return std::min(slice, task.bytes - slice * task.started);
}

void Simulation::start_slice(Global step) {
  const std::uint32_t rank = world_.owner[step];
  const double bytes = slice_bytes(tasks_[step]);
  if (tasks_[step].started == 0) tasks_[step].began = now_;
  if (bytes == 0 && world_.step(step).chunk_count > 0) return post(now_, step);  // An empty slice.
  switch (world_.step(step).kind) {
    case StepKind::send:
    case StepKind::put:
    case StepKind::signal: return depart(step, bytes);
    case StepKind::copy:
    case StepKind::reduce: {
      const double end = model_.compute.is_device
                             ? occupy_device(step, bytes)
                             : cores_.compute(rank, now_, step_us_ + compute_us(step, bytes));
      return post(end, step);
    }
    case StepKind::wait: return post(cores_.compute(rank, now_, step_us_), step);
    case StepKind::recv: return;  // The message is simulated with its send.
  }
}

void Simulation::post(double time, Global step, Stage stage, double bytes) {
  events_.push({time, serial_++, step, stage, bytes});
}

/// If schedules are staged, scratch is host memory: a slice reads sources in scratch, and writes a
/// target in scratch, over the link to the host. The device's own memory and the two directions of
/// this link work at the same time.
double Simulation::occupy_device(Global step, double bytes) {
  const ComputeCost& cost = model_.compute;
  const std::uint32_t rank = world_.owner[step];
  const double given = cores_.compute(rank, now_, step_us_ + cost.enqueue_us);
  Device& device = devices_[rank];
  if (!cost.is_staged()) {
    return device.memory.occupy(given, compute_us(step, bytes)) + cost.latency_us;
  }
  const Schedule& schedule = world_.schedule(step);
  const Step& it = world_.step(step);
  const auto is_on_host = [](const Operand& operand) { return operand.buffer == Buffer::scratch; };
  const auto reads = static_cast<double>(std::ranges::count_if(schedule.sources(it), is_on_host));
  const double writes = is_on_host(schedule.operands[it.target]) ? 1 : 0;
  const double own = it.source_count + 1 - reads - writes;
  // The rates of the model count bytes of output. A reduction of two sources accesses memory three
  // times for each of these bytes, and a copy twice.
  const double rate = it.kind == StepKind::reduce ? 3 * cost.reduce_GBps : 2 * cost.copy_GBps;
  const std::pair<Resource*, double> uses[] = {
      {&device.memory, transfer_us(own * bytes, rate)},
      {&device.from_host, transfer_us(reads * bytes, cost.host_GBps)},
      {&device.to_host, transfer_us(writes * bytes, cost.host_GBps)}};
  // Each resource serves the slice as soon as the resource is free, so that a slice that waits for
  // one resource does not block the others.
  double end = given;
  for (const auto& [resource, time] : uses) {
    if (time > 0) end = std::max(end, resource->occupy(given, time));
  }
  return end + cost.latency_us;
}

Parcel Simulation::parcel(Global step, double bytes) const {
  const std::uint32_t receiver = world_.step(step).peer;
  return {world_.owner[step],       world_.index_of(receiver), receiver, is_local(step), bytes,
          link(step).bandwidth_GBps};
}

void Simulation::depart(Global step, double bytes) {
  const std::uint32_t from = world_.owner[step];
  if (is_written(step)) {
    const double written = written_[from].at[tasks_[step].started];
    return post(std::max(now_, written), step, Stage::departed, bytes);
  }
  double by_core = is_local(step) ? 0 : model_.remote_send_us + by_core_us(bytes);
  if (takes_turns(step)) by_core = transfer_us(bytes, link(step).bandwidth_GBps);
  double start = cores_.compute(from, now_, step_us_ + by_core);
  if (!takes_turns(step)) start = network_.depart(parcel(step, bytes), start);
  if (world_.step(step).kind == StepKind::send && is_local(step)) {
    written_[from].at.push_back(start);
  }
  post(start, step, Stage::departed, bytes);
}

// Compares the predecessors, too: if the same memory is sent with different contents, the sends
// have different predecessors.
bool Simulation::is_written(Global step) {
  const Step& it = world_.step(step);
  if (it.kind != StepKind::send || !is_local(step)) return false;
  const Schedule& schedule = world_.schedule(step);
  Written& last = written_[world_.owner[step]];
  const bool is_same =
      last.send != nullptr && last.send->chunk_count == it.chunk_count &&
      schedule.operands[last.send->first_source] == schedule.operands[it.first_source] &&
      std::ranges::equal(schedule.predecessors_of(*last.send), schedule.predecessors_of(it));
  if (!is_same) last = {&it, {}};
  return tasks_[step].started < last.at.size();
}

void Simulation::arrive(Global step, double bytes) {
  const Parcel message = parcel(step, bytes);
  const double end = takes_turns(step)
                         ? cores_.read(message.to, now_, transfer_us(bytes, message.bandwidth_GBps))
                         : network_.arrive(message, now_);
  const bool takes_time = !is_local(step) && model_.remote_receive_us + model_.remote_core_GBps > 0;
  post(end + link(step).alpha_us, step, takes_time ? Stage::arrived : Stage::complete, bytes);
}

void Simulation::receive(Global step, double bytes) {
  const std::uint32_t to = world_.index_of(world_.step(step).peer);
  post(cores_.compute(to, now_, model_.remote_receive_us + by_core_us(bytes)), step);
}

double Simulation::compute_us(Global step, double bytes) const {
  const Schedule& schedule = world_.schedule(step);
  const Step& it = world_.step(step);
  // The memory traffic as a multiple of that of a reduction of two sources, which reads two buffers
  // and writes one. All sources are processed in one pass.
  const double passes = it.source_count > 2 ? (it.source_count + 1) / 3.0 : 1;
  const ComputeCost& cost = model_.compute;
  const double speed = it.kind == StepKind::reduce ? cost.reduce_GBps : cost.copy_GBps;
  double time = transfer_us(passes * bytes, speed);
  for (const Operand& source : schedule.sources(it)) {
    if (source.rank == schedule.rank) continue;
    const LinkCost& read = model_.link(schedule.rank, source.rank);
    time += read.alpha_us + transfer_us(bytes, read.bandwidth_GBps);
  }
  return time;
}

bool Simulation::is_local(Global step) const {
  return model_.are_together(world_.owner[step], world_.step(step).peer);
}

const LinkCost& Simulation::link(Global step) const {
  return model_.link(world_.owner[step], world_.step(step).peer);
}

}  // namespace xylem::collectives
