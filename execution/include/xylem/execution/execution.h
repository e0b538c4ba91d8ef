// SPDX-License-Identifier: Apache-2.0
//
// Execution: a program or a single message that the engine runs, from its start until its last
// message has ended. The caller of the engine derives a class from Execution, and keeps its own
// data for each execution there.
//
// An execution belongs to the thread that drives the engine. Only the reference count may be
// changed by any thread.
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
#include <utility>
#include <vector>

namespace xylem::execution {

class Execution;
class MessagePool;

/// The step of messages and copies of point-to-point calls.
inline constexpr StepId kPointToPoint = collectives::kNone;

/// Where scratch is.
enum class Scratch : std::uint8_t { on_host, on_device };

struct FreeScratch {
  Compute* compute = nullptr;  ///< Null stands for the CPU.
  Scratch where = Scratch::on_host;
  void operator()(std::byte* memory) const noexcept;
};

/// Memory that belongs to an execution, aligned to cache lines. It is never made smaller, and stays
/// allocated when the execution is used again.
class ScratchBuffer {
 public:
  explicit ScratchBuffer(Scratch where = Scratch::on_host) noexcept : where_(where) {}

  /// Returns at least `bytes` of memory that `compute` reaches; null stands for the CPU. The
  /// Compute must outlive this buffer. Null only if `bytes` is 0 or if there is no memory.
  std::byte* reserve(std::uint64_t bytes, Compute* compute) noexcept;
  /// The same, without allocating: null if reserve() was not called before, or found no memory.
  std::byte* reserved(std::uint64_t bytes, const Compute* compute) const noexcept {
    const bool suits = bytes <= capacity_ && memory_.get_deleter().compute == compute;
    return suits ? memory_.get() : nullptr;
  }

 private:
  Scratch where_;
  std::unique_ptr<std::byte, FreeScratch> memory_;
  std::uint64_t capacity_ = 0;
};

/// One message of an execution, posted to a transport.
struct Message : transport::Operation {
  MessagePool* pool = nullptr;
  Execution* owner = nullptr;
  transport::Transport* transport = nullptr;
  transport::Views* views = nullptr;  ///< As in Link.
  transport::EndpointId endpoint = 0;
  StepId step = 0;
  std::uint32_t slice = 0;
  bool incoming = false;
  /// True for a receive whose message may stay where it arrived (Views::recv_view).
  bool in_place = false;
  Message* previous = nullptr;  ///< In the owner's list.
  Message* next = nullptr;
  Message* completed_next = nullptr;  ///< In the pool's list of completed messages.
};

/// The progress of one step.
struct StepState {
  std::uint32_t issued = 0;
  std::uint32_t completed = 0;  ///< Slices [0, completed) are done.
  std::uint64_t ahead = 0;      ///< Bit i: slice completed + i is done too.
  bool queued = false;          ///< The step is in Run::ready or in Run::later.
  /// Number of pieces of this step that a device has not completed. A piece is one or more slices
  /// that were enqueued on the device together.
  std::uint32_t pieces = 0;
};

struct LaneState {
  std::uint32_t head = 0;  ///< The next step of the lane to issue.
  std::uint32_t in_flight = 0;
};

/// A received slice that is read where it arrived.
struct HeldView {
  /// Null if there is no view, because the slice is in its own place.
  transport::Views* views = nullptr;
  transport::View view;
  StepId step = 0;
  std::uint32_t slice = 0;
  bool is_read = false;     ///< Pending work of a device reads it.
  bool is_evicted = false;  ///< Pending work of a device copies it to its own place.
};

/// The part of Run that consists of plain values. It is replaced as a whole when the execution is
/// used again.
struct RunState {
  const Program* program = nullptr;  ///< The program, which outlives the run.
  /// base[b] is the address of the buffer b (collectives::Buffer). `input` is only read.
  /// base[kDeviceScratch] is the address at which `scratch` would begin if all of it were on the
  /// device; it is base[scratch] if none is.
  std::byte* base[kBases] = {};
  double factor = 1;  ///< Program::scale multiplies by this factor.
  /// Number of steps that have not completed. In an exchange, and in a point-to-point call: 1 until
  /// all messages have been sent or received.
  std::uint32_t steps_left = 1;
  std::uint32_t views_held = 0;
  /// In an exchange: the number of messages under way, plus 1 while messages are being posted.
  std::uint32_t under_way = 0;
  std::uint32_t sent = 0;       ///< In an exchange: the number of sends that ended within the call.
  bool is_within_call = false;  ///< The execution is an exchange in Engine::try_start().
  /// True if a sender has withdrawn a message while it was being read. Then the execution issues
  /// nothing more.
  bool is_lost = false;
  bool non_temporal = false;  ///< The output is written with non-temporal stores.
};

/// The part of an execution that concerns its device.
struct OnDevice {
  struct Copy {
    void* target = nullptr;
    const void* source = nullptr;
    std::uint64_t bytes = 0;
    HeldView view{};  ///< Contains `source`, if view.views is set. Released after the copy.
  };
  Compute* compute = nullptr;  ///< The device, which reaches all buffers. Null: the CPU computes.
  Memory memory[kBases] = {};  ///< memory[b]: in which memory Run::base[b] is.
  Ticket gate;                 ///< The execution begins when this ticket has completed.
  Copy copy{};                 ///< Point to point: begins when the gate has opened.
  Ticket end;                  ///< A gate that opens when the execution has ended.

  /// The memory of the device that reads views. Host memory if no device works for the execution.
  Memory reader() const noexcept {
    return compute != nullptr ? memory[static_cast<int>(collectives::Buffer::input)] : Memory{};
  }
};

/// The progress of an execution.
struct Run : RunState {
  OnDevice device;
  // These lists are emptied when the execution is used again, but keep their memory.
  std::vector<StepState> steps;
  std::vector<LaneState> lanes;
  std::vector<StepId> ready;  ///< Steps that may be able to issue a slice; taken from the back.
  /// The same for the next round: steps that have more slices.
  std::vector<StepId> later;
  std::vector<HeldView> views;    ///< Indexed as OperandLayout::view says.
  std::vector<HeldView> arrived;  ///< In an exchange: the messages that have arrived.
  /// Slices in device memory that wait for the device to copy them to their places.
  std::vector<HeldView> unfetched;
  std::vector<const void*> sources;  ///< The source addresses of the local step that is being run.
  /// The ticket of slice k of step s is at [s · window + k % window].
  std::vector<Ticket> tickets;
  /// The sends for which a slot is reserved, and the endpoint of each (reservation.h).
  std::vector<StepId> reserved_sends;
  std::vector<transport::EndpointId> reserved_endpoints;
  // These keep their memory for the next call, but its content has no meaning then.
  ScratchBuffer scratch, staged;
  ScratchBuffer device_scratch{Scratch::on_device};

  /// The address of a slice at its own place, which is where the layout of the operand puts it.
  /// (Views are elsewhere.)
  std::byte* address_of(const OperandLayout& layout, std::uint32_t slice) const noexcept {
    return base[layout.base] + program->slice_offset(layout, slice);
  }
  /// The view of a slice. Only for operands that have views.
  HeldView& view_at(const OperandLayout& layout, std::uint32_t slice) noexcept {
    return views[layout.view + slice % program->window];
  }
  /// The view by which a slice is read. Null if the slice is at its own place.
  HeldView* view_of(const OperandLayout& layout, std::uint32_t slice) noexcept {
    if (layout.view == collectives::kNone) return nullptr;
    HeldView& held = view_at(layout, slice);
    return held.views == nullptr ? nullptr : &held;
  }

  /// Puts a step into `ready`, or into `later`, unless it is in one of them.
  void queue(StepId id) { queue_in(ready, id); }
  void queue_again(StepId id) { queue_in(later, id); }
  void queue_all();
  /// How many slices of a step may be issued, as far as its predecessors are concerned. Unless
  /// `made` is kNone, slice `slice` of the step `made` counts as complete.
  std::uint32_t ready_slices(const ProgramStep& step,
                             StepId made = collectives::kNone,
                             std::uint32_t slice = 0) const noexcept;
  /// The step of a lane that issues its next message. kNone if all have been issued.
  StepId head_of(std::uint32_t lane) noexcept;
  /// True if the lane of a step has room for another message of this step.
  bool has_room(StepId id) const noexcept {
    // `ahead` has kMaxWindow bits, so a slice must be less than that far ahead of the oldest one
    // that has not completed.
    const StepState& state = steps[id];
    return lanes[program->steps[id].lane].in_flight < program->window &&
           state.issued - state.completed < kMaxWindow;
  }

  /// Resets everything for the next call. The lists become empty but keep their capacity; scratch
  /// and `staged` stay as they are.
  void renew() noexcept {
    static_cast<RunState&>(*this) = RunState{};
    if (device.compute != nullptr) device = OnDevice{};
    steps.clear();
    lanes.clear();
    ready.clear();
    later.clear();
    views.clear();
    arrived.clear();
    unfetched.clear();
    sources.clear();
    tickets.clear();
    reserved_sends.clear();
    reserved_endpoints.clear();
  }

 private:
  void queue_in(std::vector<StepId>& list, StepId id) {
    if (std::exchange(steps[id].queued, true)) return;
    list.push_back(id);
  }
};

/// What the engine knows about an execution. It is replaced as a whole when the execution is used
/// again.
struct ExecutionState {
  /// The ranks with which the execution exchanges messages. The object outlives the execution.
  const Peers* peers = nullptr;
  /// Number of the call in its communicator or, for a send, of the message among those to its
  /// receiver; part of the tags.
  std::uint64_t sequence = 0;
  std::uint64_t fingerprint = 0;  ///< Identifies the call and its arguments; part of the tags.
  /// Number of posted messages, of pieces of pending work, and of closed gates (0 or 1). The
  /// execution ends only when this is 0.
  std::uint32_t outstanding = 0;
  Message* messages = nullptr;
  Status health;  ///< Not OK after the execution has failed; reported when `outstanding` is 0.
  Clock::time_point failed_at{};
  std::uint64_t advanced = 0;  ///< Number of slices that have completed so far.
  bool has_ended = false;      ///< The execution has ended, and the engine does not refer to it.
  bool is_busy = false;        ///< The execution is in the engine's list of those with more to do.
  Execution* active_previous = nullptr;
  Execution* active_next = nullptr;
};

class Execution : public ExecutionState {
 public:
  Execution() noexcept = default;
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  void acquire() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  /// The release of the last reference calls unreferenced().
  void release() noexcept {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) unreferenced();
  }

  /// Records that a slice has completed, and queues the steps that wait for it.
  void complete_slice(StepId id, std::uint32_t slice);

  Run run;

 protected:
  ~Execution() = default;
  /// Sets the number of references with which an execution begins.
  void set_references(std::uint32_t count) noexcept {
    references_.store(count, std::memory_order_relaxed);
  }
  /// Resets everything for the next call, except the memory that Run::renew() keeps.
  void renew() noexcept {
    static_cast<ExecutionState&>(*this) = ExecutionState{};
    run.renew();
  }

 private:
  /// Called when the last reference is gone, by any thread.
  virtual void unreferenced() noexcept = 0;

  std::atomic<std::uint32_t> references_{0};
};

}  // namespace xylem::execution
