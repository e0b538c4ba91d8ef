// SPDX-License-Identifier: Apache-2.0
//
// all_reduce of sparse tensors: ranks tell each other how many entries they have, then gather all
// entries and add them up. What is gathered depends on what was told, so a thread of its own walks
// through the steps of one call after the other, over a communicator that nobody else uses.
#pragma once

#include "pending.h"
#include "tensors.h"
#include "xylem/xylem.h"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace xylem::pytorch {

class SparseReducer;

/// One call, carried out by the reducer's thread.
class SparseTask final : public c10d::Work {
 public:
  struct Call {
    at::Tensor tensor;
    bool is_average = false;
    std::uint64_t sequence = 0;
    std::chrono::milliseconds timeout{};
    std::uint64_t record = 0;  ///< The recorder's.
  };
  /// `reducer` carries it out.
  SparseTask(int rank, Call call, const SparseReducer& reducer);

  /// Blocks until it is done, in whatever way, and tells `pending` of a failure. Only fails where
  /// `group_state` is a failure.
  void carry_out(const Communicator& group, const Status& group_state, Pending& pending) noexcept;
  /// Lets go whoever waits for it.
  void conclude() noexcept;

  /// Refuses to where the reducer's thread would wait for itself: in callbacks of its tasks.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  Tensors result() override { return {call_.tensor}; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  std::uint64_t getSequencenumber() const override { return call_.sequence; }

 private:
  Call call_;
  const SparseReducer* const reducer_;  ///< Only to be compared.
  std::exception_ptr error_;
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
};

/// Refuses what is not a sparse tensor in the CPU's memory, and any reduction but sum and avg.
void check_sparse(const at::Tensor& tensor, const ReduceOp& op);

class SparseReducer : public std::enable_shared_from_this<SparseReducer> {
 public:
  /// `group` is for this alone; calls on it would disturb. `pending` is the group's.
  SparseReducer(Communicator group, std::shared_ptr<Pending> pending)
      : group_(std::move(group)), pending_(std::move(pending)) {}
  SparseReducer(const SparseReducer&) = delete;
  SparseReducer& operator=(const SparseReducer&) = delete;
  ~SparseReducer() = default;

  /// Sums the call's tensor, which has been checked, over the ranks, in place. Calls are carried
  /// out in their order.
  c10::intrusive_ptr<c10d::Work> reduce(SparseTask::Call call);
  /// Ends calls that go on, on all ranks; later ones fail.
  void abort() noexcept;
  /// Lets calls that go on end within a moment; later ones are refused.
  void close() noexcept;
  /// Ends the thread, and so waits for callbacks that it runs. After close(). Not with Python's
  /// lock.
  void stop() noexcept;

 private:
  friend class SparseTask;
  void run();

  /// The one whose thread this is, if any.
  static thread_local const SparseReducer* of_this_thread;

  Communicator group_;
  const std::shared_ptr<Pending> pending_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<c10::intrusive_ptr<SparseTask>> tasks_;
  std::thread thread_;
  bool is_busy_ = false;
  bool is_closed_ = false;
  Status state_;  ///< A failure from when it was closed before its calls had gone through.
};

}  // namespace xylem::pytorch
