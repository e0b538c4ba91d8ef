// SPDX-License-Identifier: Apache-2.0
//
// One run of all ranks' schedules in virtual time. Events are processed in the order of their
// times, and events with equal times in the order of their creation, so the result depends only on
// the input.
#pragma once

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

  /// For each step, and one more: index into `successors`.
  std::vector<std::uint32_t> first_successor;
  std::vector<verifier::Global> successors;
  std::vector<verifier::Global>
      lane_next;  ///< The next message, signal or wait on the same channel; kNone.
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

  /// After run(): when the step began and when it completed. A receive has the times of its send.
  double began_us(verifier::Global step) const { return began_[step]; }
  double ended_us(verifier::Global step) const { return ended_[step]; }

 private:
  using Global = verifier::Global;
  struct Event {
    double time;
    std::uint64_t serial;
    Global step;
    /// For a message slice that reaches its target's port: its size. Negative: a slice completes.
    double arriving_bytes;
    friend bool operator>(const Event& a, const Event& b) {
      return a.time != b.time ? a.time > b.time : a.serial > b.serial;
    }
  };

  void try_start(Global step);
  bool is_ready(Global step) const;
  void start_slice(Global step);
  void depart(Global step, double bytes);
  void arrive(Global step, double bytes);
  void post(double time, Global step, double arriving_bytes = -1);
  void place_ranks();
  /// Whether cores move this message, one after the other with their other work.
  bool takes_turns(Global step) const { return shares_cores_ && is_local(step); }
  double occupy_core(std::uint32_t rank, double duration);
  double read_by_core(std::uint32_t rank, double duration);
  double compute_us(Global step, double bytes) const;
  void complete(Global step);
  double slice_bytes(Global step) const;
  bool is_local(Global step) const;
  /// Whether the message uses a NIC that belongs to its rank alone.
  bool has_own_nic(Global step) const;
  const LinkCost& link(Global step) const;
  /// Whether this rank has just sent the same bytes to another rank of its host, so that they are
  /// already in shared memory.
  bool is_written(Global step);

  const verifier::World& world_;
  const Dependencies& dependencies_;
  const CostModel& model_;
  double step_us_ = 0;
  std::vector<double> bytes_;  // By step.
  std::vector<std::uint32_t> slices_, started_,
      done_;                           // Per step; a message's are those of its send.
  std::vector<double> began_, ended_;  // By step: start of its first slice, and end of its last.
  struct Written {
    const Step* send = nullptr;  // The first such send.
    std::vector<double> at;      // When each slice was written.
  };
  std::vector<Written> written_;              // By rank: its last send within its host.
  std::vector<std::uint32_t> core_of_;        // By rank.
  std::vector<std::uint32_t> turn_of_;        // By rank: its position among the ranks of its core.
  std::vector<std::uint32_t> turns_;          // By core: the number of its ranks.
  std::vector<double> core_;                  // By core: when it is free again.
  std::vector<double> local_out_, local_in_;  // The same for each rank's ports.
  std::vector<std::uint32_t> last_on_;        // By core: the rank that used it last.
  bool shares_cores_ = false;
  std::vector<double> own_out_, own_in_;        // The same for each rank's own NICs.
  std::vector<double> remote_out_, remote_in_;  // The same for each host.
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  double now_ = 0;
  std::uint64_t serial_ = 0;
};

}  // namespace xylem::collectives
