// SPDX-License-Identifier: Apache-2.0
#include "xylem/runtime/communicator.h"

#include "calls.h"
#include "group.h"

#include <fmt/format.h>

namespace xylem {

using collectives::Collective;
using runtime::Caller;

namespace {

Caller caller(const runtime::Group& group) { return {group.rank(), group.size()}; }

Work submit(runtime::Group& group, Result<runtime::Call> call) {
  if (!call) return group.refuse(call.status());
  return group.submit(std::move(call).value());
}

}  // namespace

std::uint32_t Communicator::rank() const noexcept { return group_->rank(); }
std::uint32_t Communicator::size() const noexcept { return group_->size(); }
std::uint32_t Communicator::id() const noexcept { return group_->slot(); }
std::uint32_t Communicator::world_rank(std::uint32_t rank) const noexcept {
  return group_->world_rank(rank);
}

Work Communicator::all_reduce(ConstBuffer input, Buffer output, ReduceOp op) const {
  return submit(*group_, even_call(caller(*group_), Collective::all_reduce, input, output, op, 0));
}

Work Communicator::reduce(ConstBuffer input, Buffer output, ReduceOp op, std::uint32_t root) const {
  return submit(*group_, even_call(caller(*group_), Collective::reduce, input, output, op, root));
}

Work Communicator::broadcast(ConstBuffer input, Buffer output, std::uint32_t root) const {
  return submit(*group_,
                even_call(caller(*group_), Collective::broadcast, input, output, {}, root));
}

Work Communicator::all_gather(ConstBuffer input, Buffer output) const {
  return submit(*group_, even_call(caller(*group_), Collective::all_gather, input, output, {}, 0));
}

Work Communicator::all_gather_v(ConstBuffer input,
                                Buffer output,
                                std::span<const std::uint64_t> counts) const {
  return submit(*group_,
                uneven_call(caller(*group_), Collective::all_gather, input, output, counts, {}));
}

Work Communicator::reduce_scatter(ConstBuffer input, Buffer output, ReduceOp op) const {
  return submit(*group_,
                even_call(caller(*group_), Collective::reduce_scatter, input, output, op, 0));
}

Work Communicator::reduce_scatter_v(ConstBuffer input,
                                    Buffer output,
                                    std::span<const std::uint64_t> counts,
                                    ReduceOp op) const {
  return submit(
      *group_, uneven_call(caller(*group_), Collective::reduce_scatter, input, output, counts, op));
}

Work Communicator::all_to_all(ConstBuffer input, Buffer output) const {
  return submit(*group_, even_call(caller(*group_), Collective::all_to_all, input, output, {}, 0));
}

Work Communicator::all_to_all_v(ConstBuffer input,
                                std::span<const std::uint64_t> send_counts,
                                Buffer output,
                                std::span<const std::uint64_t> recv_counts) const {
  return submit(*group_,
                all_to_all_v_call(caller(*group_), input, send_counts, output, recv_counts));
}

Work Communicator::gather(ConstBuffer input, Buffer output, std::uint32_t root) const {
  return submit(*group_, even_call(caller(*group_), Collective::gather, input, output, {}, root));
}

Work Communicator::scatter(ConstBuffer input, Buffer output, std::uint32_t root) const {
  return submit(*group_, even_call(caller(*group_), Collective::scatter, input, output, {}, root));
}

Work Communicator::barrier() const {
  return submit(*group_, even_call(caller(*group_), Collective::barrier, {}, {}, {}, 0));
}

Work Communicator::send(ConstBuffer buffer, std::uint32_t to, std::uint32_t tag) const {
  return submit(*group_, send_call(caller(*group_), buffer, to, tag));
}

Work Communicator::recv(Buffer buffer, std::optional<std::uint32_t> from, std::uint32_t tag) const {
  return submit(*group_, recv_call(caller(*group_), buffer, from, tag));
}

Result<Communicator> Communicator::split(std::int32_t color, std::int32_t key) const {
  return group_->split(color, key);
}

Status Communicator::destroy() {
  if (group_ == nullptr) return {};
  XYLEM_TRY(group_->destroy());
  group_.reset();
  return {};
}

Status Communicator::abort(std::string_view why) { return group_->abort(why); }

Result<PlanInfo> Communicator::plan_info(std::string_view collective,
                                         std::uint64_t count,
                                         DataType type,
                                         std::uint32_t root) const {
  XYLEM_TRY(const auto which, collectives::parse_collective(collective));
  if (root >= size() || (root != 0 && !has_root(which))) {
    return failure(Code::invalid_argument,
                   fmt::format("{}: root {} among {} ranks", collective, root, size()));
  }
  return group_->plan_info({which, size(), root}, count, type);
}

}  // namespace xylem
