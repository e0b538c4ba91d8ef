// SPDX-License-Identifier: Apache-2.0
//
// Backend: a process group of torch.distributed on Xylem. It is a communicator in a job that the
// groups of the process share (jobs.h).
//
// Calls on one group may come from several threads. As everywhere in torch.distributed, all ranks
// must make them in the same order.
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

  /// Connects to the other members; collective over them. Throws.
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

  /// Initializes the device, so that its first call does not have to.
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
  /// Begins a call and numbers it.
  TaskPtr make_task(c10d::OpType type, const char* title, const Tensors& inputs);
  /// Completes a task with the operations that were begun and their time-out.
  WorkPtr submit(const TaskPtr& task,
                 StartedCall begun,
                 std::chrono::milliseconds timeout,
                 const Tensors& inputs,
                 int peer = -1);
  /// The name of the group, and of the sequence of this thread's calls, for records. Computed again
  /// when torch has changed the description of the group, which it sets after construction.
  std::shared_ptr<const GroupLabel> label();
  std::chrono::milliseconds limit_of(std::chrono::milliseconds asked) const noexcept;
  /// The rank of the group that an argument names.
  std::uint32_t peer(const char* what, std::int64_t rank) const;

  const StorePtr store_;
  const GroupOptions group_;
  const c10::intrusive_ptr<Options> options_;
  Membership membership_;  ///< Without its job after shutdown().
  const std::shared_ptr<Pending> pending_;
  const std::shared_ptr<DeviceCaller> on_devices_;
  std::unique_ptr<CallSequences> sequences_;  ///< Set by the constructor.
  std::atomic<std::uint64_t> messages_{0};
  std::atomic<std::chrono::milliseconds::rep> timeout_;
  /// Number of monitored barriers so far; each has keys of its own in the store.
  std::atomic<std::uint64_t> barriers_{0};

  std::atomic<bool> is_closed_{false};
  Mutex coalescing_;
  /// Tasks since startCoalescing().
  std::optional<std::vector<TaskPtr>> coalesced_ XYLEM_LOCKING(guarded_by(coalescing_));
};

}  // namespace xylem::pytorch
