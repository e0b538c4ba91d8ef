// SPDX-License-Identifier: Apache-2.0
//
// Task: one call of c10d under way. It is made of Xylem's operations, of the tensors that these
// use, and of what is left to do when they have ended, such as copying results to where the caller
// wants them.
//
//   begun ──(its operations end)──► settled, by whoever asks first: ───────────────► fulfilled
//                                   wait(), isCompleted(),                          (its futures)
//                                   the thread that serves futures,
//                                   or a later call on the group, which does not fulfil:
//                                   callbacks do not run within others' calls
#pragma once

#include "tensors.h"
#include "xylem/xylem.h"

#include <c10/util/SmallVector.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

namespace xylem::pytorch {

class Task;
class Pending;

using TaskPtr = c10::intrusive_ptr<Task>;

/// Messages are no collectives: a barrier does not wait for them.
constexpr bool is_message(c10d::OpType type) noexcept {
  return type == c10d::OpType::SEND || type == c10d::OpType::RECV ||
         type == c10d::OpType::RECVANYSOURCE;
}
using Works = c10::SmallVector<xylem::Work, 1>;

/// A copy to be made once the operations have ended well.
struct Landing {
  at::Tensor memory;
  at::Tensor tensor;
};

/// What a call consists of once it has been begun.
struct Begun {
  Works works;
  Works awaited;                  ///< Others' operations that must have ended, too.
  std::vector<TaskPtr> parts;     ///< Tasks that it stands for.
  Tensors outputs;                ///< What result() and the future give.
  Tensors kept;                   ///< What else the operations use.
  std::vector<Landing> landings;  ///< From memory of ours to the caller's tensors.
};

/// What a task is called in errors and by profilers.
struct TaskName {
  c10d::OpType type = c10d::OpType::UNKNOWN;
  const char* title = "xylem:unknown";  ///< Static.
  std::uint64_t sequence = 0;           ///< Of collectives, in their group.
  std::uint64_t record = 0;             ///< The recorder's.
};

/// Any thread may ask and wait, several at once.
class Task final : public c10d::Work {
 public:
  Task(int rank, TaskName name, std::shared_ptr<Pending> pending, const Tensors& inputs);

  /// Takes what was begun, once. The tensors live until it has ended, whatever becomes of the
  /// task's owners.
  void take(Begun begun);
  /// Before take().
  void set_record(std::uint64_t record) noexcept { name_.record = record; }
  /// The operations; never changes once taken.
  const Works& works() const noexcept { return begun_.works; }
  const Works& awaited() const noexcept { return begun_.awaited; }
  const Tensors& outputs() const noexcept { return begun_.outputs; }
  const TaskName& name() const noexcept { return name_; }
  /// Whether it is a collective: ranks call them in one order. Not before take().
  bool is_ordered() const noexcept;
  bool is_settled() const noexcept { return settled_.load(std::memory_order_acquire); }
  /// Whether its operations have ended; moves nothing.
  bool ended() const noexcept;
  /// Settles it if it has ended; whether it has been settled.
  bool settle_if_ended() noexcept;
  /// Only once it has ended.
  void settle() noexcept;
  /// Completes the futures, and so runs their callbacks, once; who comes second waits for that of
  /// the values, not for callbacks. Only once settled.
  void fulfil() noexcept;
  /// Waits until it has ended, at most so long.
  void wait_for_end(std::chrono::nanoseconds limit) const noexcept;

  bool isCompleted() override;
  bool isSuccess() const override;
  int sourceRank() const override;
  Tensors result() override;
  /// As wait(), without Python's lock.
  void synchronize() override;
  /// Throws the task's error. Where `timeout` passes first it throws, too, and the task goes on.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  std::uint64_t getSequencenumber() const override { return name_.sequence; }

 private:
  friend class Pending;
  using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

  template <typename Visit>
  void for_each_work(const Visit& visit) const {
    for (const xylem::Work& work : begun_.awaited) visit(work);
    for (const xylem::Work& work : begun_.works) visit(work);
  }
  /// A future to be completed with the task: now, or by the thread that serves them.
  FuturePtr promise(FuturePtr& future, c10::TypePtr type);
  void complete(const FuturePtr& values, const FuturePtr& results) const noexcept;

  TaskName name_;
  const std::shared_ptr<Pending> pending_;
  Begun begun_;
  std::atomic<bool> settled_{false};
  std::mutex settling_;
  FuturePtr values_, results_;  ///< Made before it was fulfilled, if asked for.
  bool is_fulfilled_ = false;
  std::list<TaskPtr>::iterator place_;  ///< In `pending_`.
  std::atomic<bool> is_listed_{false};
};

}  // namespace xylem::pytorch
