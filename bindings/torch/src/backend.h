// SPDX-License-Identifier: Apache-2.0
//
// Backend: a process group of torch.distributed on Xylem. It makes its calls on a communicator in a
// job, which the groups of the process share (jobs.h).
//
// Several threads may make calls on one group. As everywhere in torch.distributed, all ranks must
// make the calls on a group in the same order.
#pragma once

#include "call_sequences.h"
#include "compat.h"
#include "jobs.h"
#include "pending.h"
#include "recorder.h"
#include "task.h"
#include "xylem/base/mutex.h"
#include "xylem/xylem.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace xylem::pytorch {

inline constexpr const char* kBackendName = "xylem";

class Backend final : public c10d::Backend {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using StorePtr = c10::intrusive_ptr<c10d::Store>;

  /// Connects to the other members of the group, which must all call this. Throws if this fails.
  Backend(const StorePtr& store, GroupOptions group);
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  ~Backend() override;

  const std::string getBackendName() const override { return kBackendName; }
  // NOLINTBEGIN(modernize-use-override): virtual in versions after torch 2.7; earlier versions
  // never call them.
  c10::intrusive_ptr<Options> getBackendOptions();
  void setTimeout(std::chrono::milliseconds timeout);
  c10::intrusive_ptr<c10d::Backend> split(const StorePtr& store,
                                          const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<Options>& options);
  WorkPtr gather_single(at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& options);
  // NOLINTEND(modernize-use-override)

  /// Binds the device to the group's communicator (Communicator::bind()). This also initializes the
  /// device, so that the first call on it need not do so.
  void eagerConnectSingleDevice(at::Device device) override;

  bool supportsSplitting() const override { return has_split<c10d::Backend>(); }
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr allgather(std::vector<Tensors>& outputs,
                    Tensors& inputs,
                    const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output,
                          at::Tensor& input,
                          const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs,
                              Tensors& inputs,
                              const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs,
                                          Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkPtr gather(std::vector<Tensors>& outputs,
                 Tensors& inputs,
                 const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs,
                  std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs,
                         std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output,
                               at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs,
                                          Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output,
                        at::Tensor& input,
                        std::vector<std::int64_t>& output_splits,
                        std::vector<std::int64_t>& input_splits,
                        const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs,
                   Tensors& inputs,
                   const c10d::AllToAllOptions& options) override;
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  /// A barrier that uses only the store, so that it can name the missing ranks even if nothing else
  /// works.
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override {
    return sequences_->program().sequence.load();
  }
  c10d::ErrorType getError() override;
  void abort() override;
  void shutdown() override;

 private:
  /// Makes the task for a new call, after Pending::sweep().
  TaskPtr make_task(c10d::OpType type, const char* title, const Tensors& inputs);
  /// Moves the operations that a call has begun into its task, sets their time-out, and records the
  /// call. Returns the task.
  WorkPtr submit(const TaskPtr& task,
                 StartedCall begun,
                 std::chrono::milliseconds timeout,
                 const Tensors& inputs,
                 int peer = -1);
  /// Names the group, and the sequence to which this thread's calls belong, in records. Computed
  /// again when torch has changed the group's description, which it sets only after construction.
  std::shared_ptr<const GroupLabel> label();
  std::chrono::milliseconds limit_of(std::chrono::milliseconds asked) const noexcept;
  /// Checks that `rank`, an argument of the call `what`, is a rank of the group, and returns it.
  /// Throws if it is not.
  std::uint32_t peer(const char* what, std::int64_t rank) const;

  const StorePtr store_;
  const GroupOptions group_;
  const c10::intrusive_ptr<Options> options_;
  Membership membership_;  ///< The job is null after shutdown().
  const std::shared_ptr<Pending> pending_;
  const std::shared_ptr<DeviceCaller> on_devices_;
  std::unique_ptr<CallSequences> sequences_;  ///< Set by the constructor.
  std::atomic<std::uint64_t> messages_{0};
  std::atomic<std::chrono::milliseconds::rep> timeout_;
  /// Number of monitored barriers so far; each has keys of its own in the store.
  std::atomic<std::uint64_t> barriers_{0};

  std::atomic<bool> is_closed_{false};
  Mutex coalescing_;
  /// The tasks submitted since startCoalescing(); not set outside of a coalescing block.
  std::optional<std::vector<TaskPtr>> coalesced_ XYLEM_LOCKING(guarded_by(coalescing_));
};

}  // namespace xylem::pytorch
