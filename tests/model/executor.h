// SPDX-License-Identifier: Apache-2.0
//
// A reference executor. It runs the schedules of all ranks in one thread, slice by slice, in an
// order drawn from a seed, and checks the results. It shares with the verifier only code that the
// engine also uses: pipeline() and the rules of aliasing.
#pragma once

#include "xylem/collectives/alias.h"
#include "xylem/collectives/pipeline.h"
#include "xylem/collectives/schedule.h"

#include <cstdint>
#include <deque>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace xylem::collectives::model {

/// One element: the sum of its contributions, a hash of the operations that computed it and their
/// order, and whether it was ever written.
struct Element {
  std::uint64_t sum = 0;
  std::uint64_t bits = 0;
  bool written = false;

  friend bool operator==(const Element&, const Element&) = default;
};

class Executor {
 public:
  /// Precondition: all indices in the schedules are in bounds, and each lane has as many receives
  /// as sends.
  explicit Executor(std::span<const Schedule> ranks);

  /// Runs the schedules once. The seed determines block sizes, slots, window, which ranks call in
  /// place, and the interleaving. Returns the first error: a deadlock, a wrong result, or a message
  /// of the wrong size. Returns nothing if the run is correct.
  std::optional<std::string> run(std::uint64_t seed);

 private:
  using Random = std::mt19937_64;
  struct StepState {
    std::uint32_t rank;
    StepId id;
    std::uint32_t lane;  // The lane of the step; kNone for copy, reduce and put.
    std::uint32_t turn;  // Position among the steps of the same kind on the lane.
    std::uint32_t slices;
    std::uint32_t done;
    std::uint32_t priority;
  };
  struct Message {
    std::vector<Element> data;
  };
  struct Lane {  // The state of a lane, which is a (source, target, channel).
    std::uint32_t senders = 0, receivers = 0, signals = 0, waits = 0;
    // Numbers of completed steps.
    std::uint32_t sent = 0, received = 0, signalled = 0, waited = 0;
    std::vector<std::uint32_t> recv_steps;
    std::deque<Message> in_flight;
  };
  struct Memory {
    std::vector<Element> cells[3];
    std::vector<std::size_t> starts[3];
    bool in_place = false;
  };

  void draw_setting(Random& random);
  void fill_memory();
  std::uint32_t slices_of(const StepState& state) const;
  bool is_enabled(const StepState& state) const;
  bool edges_met(const StepState& state) const;
  void perform(StepState& state);
  std::uint32_t own_block(const Schedule& schedule, const Step& step, std::uint32_t index) const;
  std::size_t step_elements(const StepState& state) const;
  Element& cell(const Operand& operand,
                std::uint32_t count,
                std::uint32_t slice,
                std::size_t position);
  std::vector<Element> read(const StepState& state, const Operand& operand);
  void write(const StepState& state, const Operand& operand, const std::vector<Element>& data);
  std::vector<Element> reduce(const StepState& state);
  void finish_step(StepState& state);
  std::optional<std::string> check_results();
  Element expected(std::uint32_t rank, std::uint32_t chunk, std::size_t index) const;

  std::span<const Schedule> ranks_;
  std::vector<Pipeline> pipelines_;
  std::vector<StepState> steps_;           // The steps of all ranks.
  std::vector<std::uint32_t> first_step_;  // Index of each rank's first step.
  std::vector<Lane> lanes_;
  std::vector<std::size_t> block_sizes_;
  std::vector<Memory> memory_;
  std::size_t slots_ = 1;
  std::uint32_t window_ = 1;
  bool rendezvous_ = false;
  std::string problem_;
};

}  // namespace xylem::collectives::model
