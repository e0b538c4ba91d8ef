// SPDX-License-Identifier: Apache-2.0
#include "xylem/runtime/communicator.h"

#include "calls/buffer_checks.h"
#include "calls/calls.h"
#include "calls/work_access.h"
#include "groups/group.h"
#include "groups/split.h"

#include <fmt/format.h>

namespace xylem {

using collectives::Collective;
using runtime::Caller;
using runtime::EvenArguments;

namespace {

Status empty() {
  return failure(
      Code::invalid_argument,
      "the communicator is empty: this rank takes no part in it, it was destroyed, or its "
      "runtime has shut down; test the handle before a call on it");
}

}  // namespace

/// Submits the call that `make(const Caller&)` returns. If `make` returns an error, the Work has
/// ended with this error.
template <typename Make>
Work Communicator::submit_made(Make&& make) const {
  if (group_ == nullptr) return runtime::WorkAccess::refused(empty());
  if (Status alive = group_->context()->process.check(); !alive)
    return runtime::WorkAccess::refused(std::move(alive));
  Result<runtime::Call> call = make(group_->caller());
  Status right = call.status();
  if (right) call->label = label_;  // Messages ignore the label: they match by tag.
  if (right && stream_) right = put_on_stream(*call, group_->caller(), *stream_, holds_stream_);
  return right ? group_->submit(std::move(call).value())
               : runtime::WorkAccess::refused(std::move(right));
}

Work Communicator::submit(EvenArguments&& arguments) const {
  if (group_ != nullptr && !stream_) return group_->collective(arguments);
  return submit_made([&](const Caller& at) { return even_call(at, arguments); });
}

std::uint32_t Communicator::rank() const noexcept { return group_ ? group_->spec().rank : kNoRank; }
std::uint32_t Communicator::size() const noexcept { return group_ ? group_->spec().size() : 0; }
std::uint32_t Communicator::id() const noexcept {
  return group_ ? group_->spec().number() : kNoRank;
}
std::uint32_t Communicator::world_rank(std::uint32_t rank) const noexcept {
  return rank < size() ? group_->spec().world_ranks[rank] : kNoRank;
}

Status Communicator::prepare(const Memory& device) const {
  if (group_ == nullptr) return empty();
  if (device.kind == MemoryKind::host) return {};
  return group_->caller().devices->of(device).status();
}

Result<Binding> Communicator::bind(const Memory& device) const {
  if (group_ == nullptr) return empty();
  return group_->bind(device);
}

Status Communicator::bind_later(const Memory& device) const {
  if (group_ == nullptr) return empty();
  return group_->bind_later(device);
}

Binding Communicator::binding() const noexcept {
  return group_ ? group_->binding() : Binding::none;
}

Work Communicator::all_reduce(ConstBuffer input, Buffer output, ReduceOp op) const {
  return submit(EvenArguments{Collective::all_reduce, input, output, op, 0, label_});
}

Work Communicator::reduce(ConstBuffer input, Buffer output, ReduceOp op, std::uint32_t root) const {
  return submit(EvenArguments{Collective::reduce, input, output, op, root, label_});
}

Work Communicator::broadcast(ConstBuffer input, Buffer output, std::uint32_t root) const {
  return submit(EvenArguments{Collective::broadcast, input, output, {}, root, label_});
}

Work Communicator::all_gather(ConstBuffer input, Buffer output) const {
  return submit(EvenArguments{Collective::all_gather, input, output, {}, 0, label_});
}

Work Communicator::all_gather_v(ConstBuffer input,
                                Buffer output,
                                std::span<const std::uint64_t> counts) const {
  return submit_made([&](const Caller& at) {
    return uneven_call(at, Collective::all_gather, input, output, counts, {});
  });
}

Work Communicator::reduce_scatter(ConstBuffer input, Buffer output, ReduceOp op) const {
  return submit(EvenArguments{Collective::reduce_scatter, input, output, op, 0, label_});
}

Work Communicator::reduce_scatter_v(ConstBuffer input,
                                    Buffer output,
                                    std::span<const std::uint64_t> counts,
                                    ReduceOp op) const {
  return submit_made([&](const Caller& at) {
    return uneven_call(at, Collective::reduce_scatter, input, output, counts, op);
  });
}

Work Communicator::all_to_all(ConstBuffer input, Buffer output) const {
  return submit(EvenArguments{Collective::all_to_all, input, output, {}, 0, label_});
}

Work Communicator::all_to_all_v(ConstBuffer input,
                                std::span<const std::uint64_t> send_counts,
                                Buffer output,
                                std::span<const std::uint64_t> recv_counts) const {
  return submit_made([&](const Caller& at) {
    return all_to_all_v_call(at, input, send_counts, output, recv_counts);
  });
}

Work Communicator::gather(ConstBuffer input, Buffer output, std::uint32_t root) const {
  return submit(EvenArguments{Collective::gather, input, output, {}, root, label_});
}

Work Communicator::scatter(ConstBuffer input, Buffer output, std::uint32_t root) const {
  return submit(EvenArguments{Collective::scatter, input, output, {}, root, label_});
}

Work Communicator::barrier() const {
  return submit(EvenArguments{Collective::barrier, {}, {}, {}, 0, label_});
}

Work Communicator::send(ConstBuffer buffer, std::uint32_t to, std::uint32_t tag) const {
  if (group_ != nullptr && !stream_) return group_->send(buffer, to, tag);
  return submit_made([&](const Caller& at) { return send_call(at, buffer, to, tag); });
}

Work Communicator::recv(Buffer buffer, std::optional<std::uint32_t> from, std::uint32_t tag) const {
  if (group_ != nullptr && !stream_) return group_->recv(buffer, from, tag);
  return submit_made([&](const Caller& at) { return recv_call(at, buffer, from, tag); });
}

Result<Communicator> Communicator::split(std::int32_t color, std::int32_t key) const {
  if (group_ == nullptr) return empty();
  XYLEM_TRY(auto part, runtime::split(*group_, color, key));
  return Communicator(std::move(part));
}

Result<Communicator> Communicator::companion() const {
  if (group_ == nullptr) return empty();
  XYLEM_TRY(auto companion, group_->companion());
  return Communicator(std::move(companion));
}

Status Communicator::destroy() {
  if (group_ == nullptr) return {};
  XYLEM_TRY(group_->destroy());
  group_.reset();
  return {};
}

void Communicator::on_failure(std::function<void(const Status&)> tell) const {
  if (group_ != nullptr) group_->on_failure(std::move(tell));
}

Status Communicator::abort(std::string_view why) {
  return group_ == nullptr ? empty() : group_->abort(why);
}

Result<PlanInfo> Communicator::plan_info(std::string_view collective,
                                         std::uint64_t count,
                                         DataType type,
                                         std::uint32_t root) const {
  if (group_ == nullptr) return empty();
  XYLEM_TRY(runtime::check_elements("plan_info", count, type));
  XYLEM_TRY(const auto which, collectives::parse_collective(collective));
  if (root >= size() || (root != 0 && !has_root(which))) {
    return failure(Code::invalid_argument,
                   fmt::format("{}: root {} among {} ranks", collective, root, size()));
  }
  XYLEM_TRY(group_->context()->process.check());
  return group_->plans().explain({which, size(), root}, count, type);
}

}  // namespace xylem
