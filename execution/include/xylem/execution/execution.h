// SPDX-License-Identifier: Apache-2.0
//
// Execution: what the engine runs, a program or a single message, from its start until its last
// message has ended. Who starts executions derives from Execution, and keeps with it whatever it
// needs to know of them.
//
// All of it belongs to the caller of the engine, but for the count of references, which any thread
// may change.
#pragma once

#include "xylem/base/clock.h"
#include "xylem/base/memory.h"
#include "xylem/base/status.h"
#include "xylem/execution/compute.h"
#include "xylem/execution/link.h"
#include "xylem/execution/program.h"
#include "xylem/transport/transport.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace xylem::execution {

class Engine;
class Execution;

/// Memory of an execution's own, aligned to cache lines; grows, and is kept for its next life.
class ScratchBuffer {
 public:
  /// At least `bytes`; null only if bytes is 0 or memory is short.
  std::byte* reserve(std::uint64_t bytes) noexcept;

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept;
  };
  std::unique_ptr<std::byte[], Free> memory_;
  std::uint64_t capacity_ = 0;
};

/// One message of an execution, posted to a transport.
struct Message : transport::Operation {
  Engine* engine = nullptr;
  Execution* owner = nullptr;
  transport::Transport* transport = nullptr;
  transport::EndpointId endpoint = 0;
  std::uint32_t step = 0;
  std::uint32_t slice = 0;
  bool incoming = false;
  bool in_place = false;        ///< A receive that shows its message.
  Message* previous = nullptr;  ///< In the owner's list.
  Message* next = nullptr;
  Message* completed_next = nullptr;  ///< In the engine's list of completions.
};

/// How far each step has come.
struct StepState {
  std::uint32_t issued = 0;
  std::uint32_t completed = 0;  ///< Slices [0, completed) are done.
  std::uint64_t ahead = 0;      ///< Bit i: slice completed + i is done too.
  bool queued = false;          ///< In Run::ready or later.
};

struct LaneState {
  std::uint32_t head = 0;  ///< Next step of the lane that issues.
  std::uint32_t in_flight = 0;
};

/// A slice that is looked at where it arrived.
struct HeldView {
  transport::Transport* transport = nullptr;  ///< Null: the slice is in its own place.
  transport::View view;
  StepId step = 0;
  std::uint32_t slice = 0;
};

/// How far an execution is, as values. Replaced as a whole between two of its lives.
struct RunState {
  const Program* program = nullptr;  ///< It outlives the run.
  std::byte* base[3] = {};           ///< By collectives::Buffer. `input` is only read.
  double factor = 1;                 ///< By which Program::scale multiplies.
  std::uint32_t steps_left = 1;      ///< Point to point: 1 until the message is through.
  std::uint32_t views_held = 0;
  std::uint32_t under_way = 0;  ///< Of an exchange: messages, and one while they are posted.
  std::uint32_t sent = 0;       ///< Of an exchange: sends that ended within the call.
  bool is_within_call = false;  ///< Of an exchange: it has not had to wait so far.
  bool is_lost = false;         ///< What it has read is not what was sent: nothing goes on.
  bool past_cache = false;      ///< The output is larger than what caches keep.
};

/// What there is to know of an execution that the CPU does not compute.
struct OnDevice {
  Compute* compute = nullptr;  ///< Reaches all buffers. Null: the CPU computes.
  Memory memory[3] = {};       ///< Of the buffers, by collectives::Buffer.
  Ticket gate;                 ///< Nothing of the execution begins before this is done.
  Ticket end;                  ///< A gate that opens when the execution has ended.
};

/// How far an execution is.
struct Run : RunState {
  OnDevice device;
  // Lists, empty between two lives. Their memory serves the next one, too.
  std::vector<StepState> steps;
  std::vector<LaneState> lanes;
  std::vector<StepId> ready;         ///< To be looked at, last first.
  std::vector<StepId> later;         ///< In the next round: there is more of them.
  std::vector<HeldView> views;       ///< By Place::view.
  std::vector<HeldView> arrived;     ///< Of an exchange.
  std::vector<const void*> sources;  ///< Of the local step being run.
  std::vector<Ticket> tickets;  ///< Pending slices: of step s, slice k, [s · window + k % window].
  // Only room: what they hold means nothing to the next call.
  ScratchBuffer scratch, staged;

  /// As new, but for the memory that it keeps.
  void renew() noexcept {
    static_cast<RunState&>(*this) = RunState{};
    if (device.compute != nullptr) device = OnDevice{};
    steps.clear();
    lanes.clear();
    ready.clear();
    later.clear();
    views.clear();
    arrived.clear();
    sources.clear();
    tickets.clear();
  }
};

/// What the engine knows of an execution. Replaced as a whole between two lives.
struct ExecutionState {
  const Peers* peers = nullptr;   ///< Whom its messages go to; outlives the execution.
  std::uint64_t sequence = 0;     ///< Number of the call in its communicator, for tags,
  std::uint64_t fingerprint = 0;  ///< and what tells its arguments apart from others.
  std::uint32_t outstanding = 0;  ///< Messages posted, work enqueued, and a closed gate.
  Message* messages = nullptr;
  Status health;  ///< Not OK once it fails; reported when `outstanding` is 0.
  Clock::time_point failed_at{};
  std::uint64_t advanced = 0;  ///< Completions so far.
  bool has_ended = false;      ///< The engine has let go of it.
  bool is_busy = false;        ///< Among the engine's executions with more to do.
  Execution* active_previous = nullptr;
  Execution* active_next = nullptr;
};

class Execution : public ExecutionState {
 public:
  Execution() noexcept = default;
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  void acquire() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  /// The last one calls unreferenced().
  void release() noexcept {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) unreferenced();
  }

  Run run;

 protected:
  ~Execution() = default;
  /// Those with which an execution begins.
  void set_references(std::uint32_t count) noexcept {
    references_.store(count, std::memory_order_relaxed);
  }
  /// As new, but for the memory that it keeps.
  void renew() noexcept {
    static_cast<ExecutionState&>(*this) = ExecutionState{};
    run.renew();
  }

 private:
  /// Nobody refers to it any more. Any thread.
  virtual void unreferenced() noexcept = 0;

  std::atomic<std::uint32_t> references_{0};
};

}  // namespace xylem::execution
