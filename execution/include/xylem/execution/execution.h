// SPDX-License-Identifier: Apache-2.0
//
// Execution: a program or a single message that the engine runs, from its start until its last
// message has ended. The user of the engine derives a class from Execution, whose objects hold the
// user's own data about each execution.
//
// Only the thread that drives the engine may access an execution, except for the reference count,
// which any thread may change. An Execution object can be reused for further calls (renew()).
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

/// The value of `step` in messages and copies of point-to-point calls.
inline constexpr StepId kPointToPoint = collectives::kNone;

/// In which memory scratch lies: of the host or of a device.
enum class Scratch : std::uint8_t { on_host, on_device };

/// A deleter that frees scratch.
struct FreeScratch {
  Compute* compute = nullptr;  ///< The Compute that allocated it. Null: operator new did.
  Scratch where = Scratch::on_host;
  void operator()(std::byte* memory) const noexcept;
};

/// Scratch of an execution, aligned to cache lines. It stays allocated when the Execution object is
/// reused, and is replaced only if more memory is needed, or memory for another Compute.
class ScratchBuffer {
 public:
  explicit ScratchBuffer(Scratch where = Scratch::on_host) noexcept : where_(where) {}

  /// Returns at least `bytes` of scratch: of `compute`, which must outlive this buffer, or if it is
  /// null, of the CPU. The device can access scratch on the host only after pin(). Returns null
  /// only if `bytes` is 0 or if there is no memory.
  std::byte* reserve(std::uint64_t bytes, Compute* compute) noexcept;
  /// Like reserve(), but never allocates: returns null if the buffer is too small, or has been
  /// allocated for another Compute.
  std::byte* reserved(std::uint64_t bytes, const Compute* compute) const noexcept {
    const bool suits = bytes <= capacity_ && memory_.get_deleter().compute == compute;
    return suits ? memory_.get() : nullptr;
  }
  /// Makes memory on the host accessible to the Compute (Compute::pin_scratch()).
  Status pin() {
    Compute* const compute = memory_.get_deleter().compute;
    if (memory_ == nullptr || compute == nullptr || is_pinned_) return {};
    XYLEM_TRY(compute->pin_scratch(memory_.get()));
    is_pinned_ = true;
    return {};
  }

 private:
  Scratch where_;
  bool is_pinned_ = false;
  std::unique_ptr<std::byte, FreeScratch> memory_;
  std::uint64_t capacity_ = 0;
};

/// One message of an execution, posted to a transport.
struct Message : transport::Operation {
  MessagePool* pool = nullptr;
  Execution* owner = nullptr;
  transport::Transport* transport = nullptr;
  transport::Views* views = nullptr;  ///< See Link::views.
  transport::EndpointId endpoint = 0;
  StepId step = 0;
  std::uint32_t slice = 0;
  bool incoming = false;
  /// True for a receive whose message may stay where it arrived (Views::recv_view).
  bool in_place = false;
  Message* previous = nullptr;  ///< Links of the list ExecutionState::messages.
  Message* next = nullptr;
  Message* completed_next = nullptr;  ///< Link of the pool's list of completed messages.
};

/// The progress of one step.
struct StepState {
  std::uint32_t issued = 0;
  std::uint32_t completed = 0;  ///< Slices [0, completed) have completed.
  std::uint64_t ahead = 0;      ///< Bit i: slice `completed` + i has completed, too.
  bool queued = false;          ///< The step is in Run::ready or in Run::later.
  /// Number of pieces of this step that a device has not completed. A piece is one or more slices
  /// that were enqueued on the device together.
  std::uint32_t pieces = 0;
};

struct LaneState {
  std::uint32_t head = 0;  ///< Index of the lane's next step in Program::steps_of(lane).
  std::uint32_t in_flight = 0;
};

/// A received slice that is read where it arrived.
struct HeldView {
  /// Null if there is no view: the slice is at its own place.
  transport::Views* views = nullptr;
  transport::View view;
  StepId step = 0;
  std::uint32_t slice = 0;
  bool is_read = false;     ///< Pending work of a device reads the view.
  bool is_evicted = false;  ///< Pending work of a device copies the slice to its own place.
};

/// The part of Run that consists of plain values. It is replaced as a whole when the Execution
/// object is reused.
struct RunState {
  const Program* program = nullptr;  ///< The program, which outlives the run.
  /// base[b] is the address of the buffer b (collectives::Buffer). `input` is only read. Scratch on
  /// the device has the offsets that follow those of scratch on the host. So base[kDeviceScratch]
  /// is the address of the device's scratch minus the size of the host's scratch. If no scratch is
  /// on the device, base[kDeviceScratch] equals base[scratch].
  std::byte* base[kBases] = {};
  double factor = 1;  ///< Arithmetic::scale multiplies by this factor.
  /// Number of steps that have not completed. In an exchange and in a point-to-point call, it is 1
  /// until the messages have been sent and received, and then 0.
  std::uint32_t steps_left = 1;
  std::uint32_t views_held = 0;
  /// In an exchange: the number of messages under way, plus 1 while messages are being posted.
  std::uint32_t under_way = 0;
  std::uint32_t sent = 0;       ///< In an exchange: number of sends that try_start() has made.
  bool is_within_call = false;  ///< Engine::try_start() is running this exchange.
  /// True if a sender has withdrawn a message while this rank was reading it. The execution then
  /// issues nothing more.
  bool is_lost = false;
  bool non_temporal = false;  ///< The output is written with non-temporal stores.
};

/// The part of an execution that concerns its device.
struct OnDevice {
  struct Copy {
    void* target = nullptr;
    const void* source = nullptr;
    std::uint64_t bytes = 0;
    HeldView view{};  ///< If view.views is set: contains `source`, released after the copy.
  };
  Compute* compute = nullptr;  ///< The device; it can access all buffers. Null: the CPU computes.
  Memory memory[kBases] = {};  ///< memory[b] says in which memory Run::base[b] lies.
  Ticket gate;                 ///< The execution begins when this ticket has completed.
  Copy copy{};                 ///< In a point-to-point call: begins when `gate` has opened.
  Ticket end;                  ///< A gate that the engine opens when the execution has ended.

  /// The memory of the device that reads views; host memory if the CPU reads them.
  Memory reader() const noexcept {
    return compute != nullptr ? memory[static_cast<int>(collectives::Buffer::input)] : Memory{};
  }
};

/// The progress of an execution.
struct Run : RunState {
  OnDevice device;
  // These lists are emptied when the Execution object is reused, but keep their capacity.
  std::vector<StepState> steps;
  std::vector<LaneState> lanes;
  std::vector<StepId> ready;  ///< Steps that may be able to issue a slice, taken from the back.
  /// Steps that may be able to issue a slice in the next round.
  std::vector<StepId> later;
  std::vector<HeldView> views;    ///< One for each slice that can have a view; see view_at().
  std::vector<HeldView> arrived;  ///< In an exchange: the messages that have arrived.
  /// Slices that have arrived in device memory, and whose copies to their places have not been
  /// enqueued yet.
  std::vector<HeldView> unfetched;
  std::vector<const void*> sources;  ///< The source addresses of the local step that is being run.
  /// If a device computes: the ticket of slice k of step s is at [s · window + k % window].
  std::vector<Ticket> tickets;
  /// The sends for which a slot is reserved, and the endpoint of each (reservation.h).
  std::vector<StepId> reserved_sends;
  std::vector<transport::EndpointId> reserved_endpoints;
  // These buffers stay allocated for the next call, but their contents are then undefined.
  ScratchBuffer scratch, staged;
  ScratchBuffer device_scratch{Scratch::on_device};

  /// The address of a slice at its own place, as `layout` determines it. (A view of the slice lies
  /// elsewhere.)
  std::byte* address_of(const OperandLayout& layout, std::uint32_t slice) const noexcept {
    return base[layout.base] + program->slice_offset(layout, slice);
  }
  /// The entry of `views` for a slice. Precondition: the operand has views (layout.view is not
  /// kNone).
  HeldView& view_at(const OperandLayout& layout, std::uint32_t slice) noexcept {
    return views[layout.view + slice % program->window];
  }
  /// The view by which a slice is read. Null if the slice is at its own place.
  HeldView* view_of(const OperandLayout& layout, std::uint32_t slice) noexcept {
    if (layout.view == collectives::kNone) return nullptr;
    HeldView& held = view_at(layout, slice);
    return held.views == nullptr ? nullptr : &held;
  }

  /// queue() adds a step to `ready`, queue_again() to `later`. They do nothing if the step is in
  /// one of the two lists.
  void queue(StepId id) { queue_in(ready, id); }
  void queue_again(StepId id) { queue_in(later, id); }
  void queue_all();
  /// The number of slices of a step that its predecessors allow to be issued. If `made` is not
  /// kNone, slice `slice` of the step `made` counts as completed.
  std::uint32_t ready_slices(const ProgramStep& step,
                             StepId made = collectives::kNone,
                             std::uint32_t slice = 0) const noexcept;
  /// The step of a lane whose slice is the next message of the lane. kNone if all messages have
  /// been issued.
  StepId head_of(std::uint32_t lane) noexcept;
  /// True if the lane of a step has room for another message of this step.
  bool has_room(StepId id) const noexcept {
    // StepState::ahead has kMaxWindow bits, and its first bit is the oldest slice that has not
    // completed. So at most kMaxWindow slices may be issued from this slice on.
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

/// The engine's data about an execution. It is replaced as a whole when the Execution object is
/// reused.
struct ExecutionState {
  /// The ranks with which the execution exchanges messages. The object outlives the execution.
  const Peers* peers = nullptr;
  /// For a collective: the number of the call in its communicator. For a send: the number of the
  /// message among all messages to its receiver. The number is a part of the tags.
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
  bool is_busy = false;        ///< The execution is in Engine::busy_.
  Execution* active_previous = nullptr;
  Execution* active_next = nullptr;
};

class Execution : public ExecutionState {
 public:
  Execution() noexcept = default;
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  void acquire() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  /// Drops a reference; calls unreferenced() if it was the last one.
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
  /// Called by the thread that drops the last reference, which may be any thread.
  virtual void unreferenced() noexcept = 0;

  std::atomic<std::uint32_t> references_{0};
};

}  // namespace xylem::execution
