// SPDX-License-Identifier: Apache-2.0
#include "sparse.h"

#include "failure.h"

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <utility>

namespace xylem::pytorch {
namespace {

/// Memory for the rows of all ranks.
at::Tensor rows_of_all(const at::Tensor& own, std::int64_t count) {
  std::vector<std::int64_t> sizes = own.sizes().vec();
  sizes[0] = count;
  return at::empty(sizes, own.options());
}

}  // namespace

void check_sparse(const at::Tensor& tensor, const ReduceOp& op) {
  if (tensor.layout() != at::kSparse || !tensor.device().is_cpu()) {
    refuse(c10::str("all_reduce: a tensor of layout ", tensor.layout(), " on ", tensor.device(),
                    "; of sparse ones, COO tensors in the CPU's memory are reduced"));
  }
  if (op.op != RedOp::sum && op.op != RedOp::avg) {
    check(failure(Code::unsupported,
                  c10::str(name(op.op), " of sparse tensors; they are summed or averaged")));
  }
  if (tensor.dim() > static_cast<std::int64_t>(SparseCall::kMostDimensions)) {
    check(
        failure(Code::unsupported, c10::str("all_reduce of a sparse tensor of ", tensor.dim(),
                                            " dimensions; at most ", SparseCall::kMostDimensions)));
  }
}

bool SparseCall::Shape::is_like(const Shape& other) const noexcept {
  return type == other.type && sparse_dimensions == other.sparse_dimensions &&
         dimensions == other.dimensions && sizes == other.sizes;
}

std::string SparseCall::Shape::text() const {
  return c10::str("sizes ", at::IntArrayRef(sizes.data(), static_cast<std::size_t>(dimensions)),
                  ", ", sparse_dimensions, " of them sparse, of ",
                  static_cast<at::ScalarType>(type));
}

SparseCall::SparseCall(const at::Tensor& tensor,
                       bool is_average,
                       std::chrono::milliseconds limit,
                       std::string note)
    : tensor_(tensor), is_average_(is_average), limit_(limit), note_(std::move(note)) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::Tensor own = tensor.coalesce();
  own_indices_ = own._indices().t().contiguous();
  own_values_ = own._values().contiguous();
}

std::span<SparseCall::Shape> SparseCall::shapes() const {
  return {static_cast<Shape*>(shapes_.data_ptr()), static_cast<std::size_t>(shapes_.size(0))};
}

Launch SparseCall::gather_shapes(const Communicator& collectives, std::uint32_t proposed) {
  constexpr std::size_t kWords = sizeof(Shape) / sizeof(std::int64_t);
  shapes_ = at::empty({collectives.size(), kWords}, at::kLong);
  Shape& own = shapes()[collectives.rank()];
  own = {proposed,
         own_values_.size(0),
         static_cast<std::int64_t>(tensor_.scalar_type()),
         tensor_.sparse_dim(),
         tensor_.dim(),
         {}};
  std::ranges::copy(tensor_.sizes(), own.sizes.begin());
  Launch launch;
  launch.outputs = {tensor_};
  launch.kept = {shapes_};
  launch.works.push_back(
      collectives.all_gather(ConstBuffer(&own, kWords, DataType::int64), moved(shapes_)));
  return launch;
}

Launch SparseCall::exchange_entries(const Communicator& messages) {
  const std::uint32_t own = messages.rank();
  std::int64_t count = 0;
  for (std::uint32_t rank = 0; rank < messages.size(); ++rank) {
    count += shapes()[rank].entries;
    if (shapes()[rank].is_like(shapes()[own])) continue;
    // All ranks detect this, so the next call is not affected.
    check(failure(Code::mismatch,
                  c10::str("all_reduce of sparse tensors: rank ", messages.world_rank(own), " has ",
                           shapes()[own].text(), ", rank ", messages.world_rank(rank), " has ",
                           shapes()[rank].text()),
                  messages.world_rank(rank)),
          note_);
  }
  // No operation may have been started if there is no memory.
  indices_ = rows_of_all(own_indices_, count);
  values_ = rows_of_all(own_values_, count);
  Launch launch;
  launch.kept = {own_indices_, own_values_, indices_, values_};
  const auto tag = static_cast<std::uint32_t>(shapes().front().tag);
  for (const auto& [mine, all] :
       {std::pair(own_indices_, indices_), std::pair(own_values_, values_)}) {
    std::int64_t first = 0;
    for (std::uint32_t rank = 0; rank < messages.size(); ++rank) {
      const at::Tensor rows = all.narrow(0, std::exchange(first, first + shapes()[rank].entries),
                                         shapes()[rank].entries);
      if (rank == own) {
        rows.copy_(mine);
      } else {
        launch.works.push_back(messages.recv(moved(rows), rank, tag));
        launch.works.push_back(messages.send(moved(mine), rank, tag));
      }
    }
  }
  for (const xylem::Work& work : launch.works) work.set_timeout(limit_);
  return launch;
}

Launch SparseCall::add() {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  at::Tensor sum =
      at::sparse_coo_tensor(indices_.t(), values_, tensor_.sizes(), tensor_.options()).coalesce();
  if (is_average_) {
    // Integers are truncated, as for dense tensors.
    const std::int64_t size = shapes_.size(0);
    sum = at::isIntegralType(sum.scalar_type(), true) ? sum.div_(size, "trunc") : sum.div_(size);
  }
  tensor_.copy_(sum);
  Launch launch;
  launch.outputs = {tensor_};
  return launch;
}

}  // namespace xylem::pytorch
