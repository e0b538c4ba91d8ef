// SPDX-License-Identifier: Apache-2.0
//
// CallSequences: the communicators on which a group makes its calls.
#pragma once

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
  std::atomic<std::uint64_t> sequence{0};  ///< The number of collectives so far, for records.
  /// The number of collectives that have begun, without those on sparse tensors.
  std::atomic<std::uint64_t> begun{0};
  std::shared_ptr<SparseReducer> sparse;
  Mutex labelling;
  std::shared_ptr<const GroupLabel> label XYLEM_LOCKING(guarded_by(labelling));
};

/// The calls of the program are one sequence. Those of callbacks are another, since it depends on
/// chance when callbacks run in relation to the program. Thread-safe.
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

  /// The communicator for collectives of this thread.
  Communicator collectives() { return here().group.labelled(pending_->label_of_calls()); }
  /// The same for tensors on the device of `tensor`. If this is not the CPU, the call begins after
  /// the work that was enqueued on the device's current stream, and `begun.device` is set.
  Communicator collectives_on(const at::Tensor& tensor, StartedCall& begun) {
    return on_device_of(tensor, begun, collectives());
  }
  /// The same for a message. Messages match by their tags, whether the program or a callback calls.
  Communicator messages_on(const at::Tensor& tensor, StartedCall& begun) {
    return on_device_of(tensor, begun, program_.group);
  }

 private:
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
};

}  // namespace xylem::pytorch
