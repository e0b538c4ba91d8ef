// SPDX-License-Identifier: Apache-2.0
//
// CallSequences: the two communicators on which a group makes its calls, one for the program and
// one for callbacks of futures.
#pragma once

#include "failure.h"
#include "on_device.h"
#include "pending.h"
#include "recorder.h"
#include "sparse.h"
#include "task.h"
#include "xylem/base/mutex.h"
#include "xylem/xylem.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace xylem::pytorch {

/// A sequence of collectives, which all ranks call in the same order.
struct CallSequence {
  Communicator group;
  /// The number of operations that collectives have begun so far, for records and errors.
  std::atomic<std::uint64_t> sequence{0};
  /// The number of calls of collectives, except on sparse tensors. See Task::set_number().
  std::atomic<std::uint64_t> begun{0};
  std::shared_ptr<SparseReducer> sparse;
  Mutex labelling;
  std::shared_ptr<const GroupLabel> label XYLEM_LOCKING(guarded_by(labelling));
};

/// The collectives that the program calls are one sequence. The collectives that callbacks of
/// futures call are another: when callbacks run, relative to the program's calls, differs between
/// ranks. Thread-safe.
class CallSequences {
 public:
  /// `program` and `callbacks` are communicators of the same members in `job`.
  CallSequences(const std::shared_ptr<SharedJob>& job,
                Communicator program,
                Communicator callbacks,
                const std::shared_ptr<Pending>& pending,
                std::shared_ptr<DeviceCaller> on_devices)
      : pending_(pending), on_devices_(std::move(on_devices)) {
    program_.group = std::move(program);
    callbacks_.group = std::move(callbacks);
    for_each([&](CallSequence& each) {
      each.sparse = std::make_shared<SparseReducer>(job, each.group, pending);
    });
  }

  CallSequence& program() noexcept { return program_; }
  /// The sequence to which the calls of this thread belong.
  CallSequence& here() noexcept { return Pending::origin().is_program() ? program_ : callbacks_; }
  template <typename Visit>
  void for_each(const Visit& visit) {
    visit(program_);
    visit(callbacks_);
  }

  /// The communicator for collectives that this thread calls.
  Communicator collectives() { return here().group.labelled(pending_->label_of_calls()); }
  /// Like collectives(), for a call on `tensor`. If the tensor is not on the CPU, sets
  /// `begun.device`; the call then begins after the work that was enqueued on the device's current
  /// stream.
  Communicator collectives_on(const at::Tensor& tensor, StartedCall& begun) {
    if (!tensor.is_cpu()) bind(tensor.device());
    return on_device_of(tensor, begun, collectives());
  }
  /// The device that is bound to the group; `other` if there is none yet.
  c10::Device bound_device(const c10::Device& other) const {
    const c10::DeviceIndex index = bound_.load(std::memory_order_relaxed);
    return index < 0 ? other : c10::Device(other.type(), index);
  }
  /// Call this when the device has been bound to the program's communicator.
  void note_bound(const c10::Device& device) { bound_ = device.index(); }
  /// The communicator for a message to or from `tensor`; sets `begun.device` as collectives_on()
  /// does. The program and callbacks use the same communicator, since messages match by their tags.
  Communicator messages_on(const at::Tensor& tensor, StartedCall& begun) {
    return on_device_of(tensor, begun, program_.group);
  }

 private:
  /// Binds the device of the group's first collective on a device. Throws for another device.
  void bind(const at::Device& device) {
    const c10::DeviceIndex index = device.index();
    if (bound_.load(std::memory_order_relaxed) == index) return;
    if (const auto memory = memory_of(device)) {
      check(program_.group.bind_later(*memory), pending_->note());
      bound_.store(index, std::memory_order_relaxed);
    }
  }
  Communicator on_device_of(const at::Tensor& tensor,
                            StartedCall& begun,
                            Communicator group) const {
    if (tensor.is_cpu()) return group;
    begun.device = std::make_unique<OnDevice>(group, tensor.device(), on_devices_);
    return begun.device->group();
  }

  const std::shared_ptr<Pending> pending_;
  const std::shared_ptr<DeviceCaller> on_devices_;
  CallSequence program_, callbacks_;
  /// Index of the device that bind() has bound; -1 if none.
  std::atomic<c10::DeviceIndex> bound_{-1};
};

}  // namespace xylem::pytorch
