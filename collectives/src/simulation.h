// SPDX-License-Identifier: Apache-2.0
//
// One run of all ranks' schedules in virtual time. Events are taken in the order of their times,
// ties in the order in which they arose, so a run depends on its input alone.
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

/// What steps wait for, resolved once for many runs.
struct Dependencies {
  explicit Dependencies(const verifier::World& world);

  std::vector<std::uint32_t> first_successor;  ///< Per step and one more, into `successors`.
  std::vector<verifier::Global> successors;
  std::vector<verifier::Global>
      lane_next;  ///< The next message, signal or wait on its channel; kNone.
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

  /// After run(): when the step began, and when it was done. A receive's are those of its send.
  double began_us(verifier::Global step) const { return began_[step]; }
  double ended_us(verifier::Global step) const { return ended_[step]; }

 private:
  using Global = verifier::Global;
  struct Event {
    double time;
    std::uint64_t serial;
    Global step;
    double arriving_bytes;  ///< A message's slice reaches its target's port; negative: a slice
                            ///< completes.
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
  /// Whether cores move this message one after another with all else that they do.
  bool takes_turns(Global step) const { return shares_cores_ && is_local(step); }
  double occupy_core(std::uint32_t rank, double duration);
  double read_by_core(std::uint32_t rank, double duration);
  double compute_us(Global step, double bytes) const;
  void complete(Global step);
  double slice_bytes(Global step) const;
  bool is_local(Global step) const;
  /// Whether it goes over a NIC of its rank's own.
  bool has_own_nic(Global step) const;
  const LinkCost& link(Global step) const;
  /// Whether the bytes of this slice are those that its rank has just sent to another of its host:
  /// they are in the memory that both read.
  bool is_written(Global step);

  const verifier::World& world_;
  const Dependencies& dependencies_;
  const CostModel& model_;
  double step_us_ = 0;
  std::vector<double> bytes_;  // Per step.
  std::vector<std::uint32_t> slices_, started_,
      done_;                           // Per step; a message's are those of its send.
  std::vector<double> began_, ended_;  // Per step, of its first and last slice.
  struct Written {
    const Step* send = nullptr;  // The first of them.
    std::vector<double> at;      // When each of its slices was.
  };
  std::vector<Written> written_;              // By rank: what it sent last within its host.
  std::vector<std::uint32_t> core_of_;        // By rank.
  std::vector<std::uint32_t> turn_of_;        // By rank: among those of its core.
  std::vector<std::uint32_t> turns_;          // By core: its ranks.
  std::vector<double> core_;                  // When it is free again.
  std::vector<double> local_out_, local_in_;  // The same of each rank's ports.
  std::vector<std::uint32_t> last_on_;        // The rank that had a core last.
  bool shares_cores_ = false;
  std::vector<double> own_out_, own_in_;        // The same of a rank's NICs.
  std::vector<double> remote_out_, remote_in_;  // The same per host.
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  double now_ = 0;
  std::uint64_t serial_ = 0;
};

}  // namespace xylem::collectives
