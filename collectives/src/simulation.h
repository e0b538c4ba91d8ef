// SPDX-License-Identifier: Apache-2.0
//
// One run of all ranks' schedules in virtual time. Events are processed in the order of their
// times, and events with equal times in the order of their creation, so the result depends only on
// the input.
#pragma once

#include "simulated_cores.h"
#include "simulated_network.h"
#include "simulated_resource.h"
#include "verify/world.h"
#include "xylem/collectives/cost_model.h"
#include "xylem/collectives/layout.h"

#include <cstdint>
#include <queue>
#include <span>
#include <vector>

namespace xylem::collectives {

/// Bytes that a step moves.
std::uint64_t step_bytes(const Schedule& schedule, const Layout& layout, const Step& step);

/// The dependencies between steps, computed once for many runs.
struct Dependencies {
  explicit Dependencies(const verifier::World& world);

  /// steps + 1 entries: the successors of step s are [first_successor[s], first_successor[s + 1]).
  std::vector<std::uint32_t> first_successor;
  std::vector<verifier::Global> successors;
  std::vector<verifier::Global>
      lane_next;  ///< The next step on the same lane (peer, channel), or kNone.
  std::vector<verifier::Global> lane_previous;
};

class Simulation {
 public:
  Simulation(const verifier::World& world,
             const Dependencies& dependencies,
             const CostModel& model,
             const Counts& counts);

  /// Microseconds until the last step of the last rank has completed.
  double run();

  /// After run(): when `step` began and when it completed. `step` must not be a receive: the times
  /// of a message are stored at its send.
  double began_us(verifier::Global step) const { return tasks_[step].began; }
  double ended_us(verifier::Global step) const { return tasks_[step].ended; }

 private:
  using Global = verifier::Global;
  /// What has happened to a slice: it has begun to leave its sender, all of it has arrived at its
  /// receiver, or it is complete.
  enum class Stage : std::uint8_t { departed, arrived, complete };
  struct Event {
    double time;
    std::uint64_t serial;
    Global step;
    Stage stage;
    double bytes;  ///< Of a slice of a message.
    friend bool operator>(const Event& a, const Event& b) {
      return a.time != b.time ? a.time > b.time : a.serial > b.serial;
    }
  };

  /// A step and its progress, counted in slices.
  struct Task {
    double bytes = 0;
    std::uint32_t slices = 1, started = 0, done = 0;
    double began = 0, ended = 0;  // The start of the first slice, and the end of the last.
  };

  void try_start(Global step);
  bool is_ready(Global step) const;
  void start_slice(Global step);
  void depart(Global step, double bytes);
  void arrive(Global step, double bytes);
  void receive(Global step, double bytes);
  /// The time of a core for the bytes of a slice of a message between hosts, at each end.
  double by_core_us(double bytes) const {
    return model_.remote_core_GBps > 0 ? transfer_us(bytes, model_.remote_core_GBps) : 0;
  }
  void post(double time, Global step, Stage stage = Stage::complete, double bytes = 0);
  /// Whether the cores move this message, and can do no other work meanwhile.
  bool takes_turns(Global step) const { return cores_.are_shared() && is_local(step); }
  /// Enqueues a slice of a copy or reduction on the device of its rank. Returns the time at which
  /// the rank detects that the slice has ended.
  double occupy_device(Global step, double bytes);
  double compute_us(Global step, double bytes) const;
  void complete(Global step);
  double slice_bytes(const Task& task) const;
  bool is_local(Global step) const;
  Parcel parcel(Global step, double bytes) const;
  const LinkCost& link(Global step) const;
  /// Whether the next slice of this send is already in shared memory, because the rank's previous
  /// send within its host had the same bytes.
  bool is_written(Global step);

  const verifier::World& world_;
  const Dependencies& dependencies_;
  const CostModel& model_;
  double step_us_ = 0;
  std::vector<Task> tasks_;  // Indexed by step. The progress of a message is stored at its send.
  // The bytes that a rank sent last within its host.
  struct Written {
    const Step* send = nullptr;  // The first of the sends of these bytes.
    std::vector<double> at;      // When each slice was written.
  };
  std::vector<Written> written_;  // Indexed by rank.
  // The resources of a rank's device: its memory, and its link to the host in each direction.
  struct Device {
    Resource memory, from_host, to_host;
  };
  std::vector<Device> devices_;  // Indexed by rank.
  SimulatedCores cores_;
  SimulatedNetwork network_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  double now_ = 0;
  std::uint64_t serial_ = 0;
};

}  // namespace xylem::collectives
