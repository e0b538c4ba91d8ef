// SPDX-License-Identifier: Apache-2.0
//
// all_reduce of sparse tensors, in three steps (Task::then()), each of which depends on the result
// of the one before it:
//
//   gather the shapes ──► exchange the entries ──► add them
//
// The first step is a collective, in the order of all others. When it ends, in relation to later
// calls of the program, depends on timing. So the second step consists of messages, which have no
// order, under a tag that no other call uses.
#pragma once

#include "task.h"
#include "tensors.h"
#include "xylem/xylem.h"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace xylem::pytorch {

/// Throws unless the tensor is sparse and in CPU memory, and `op` is sum or avg.
void check_sparse(const at::Tensor& tensor, const ReduceOp& op);

/// One call. Each function starts the operations of one step.
class SparseCall {
 public:
  static constexpr std::size_t kMostDimensions = 16;

  /// Reduces `tensor`, which must have been checked, in place. Each message may take `limit`.
  /// `note` is appended to errors.
  SparseCall(const at::Tensor& tensor,
             bool is_average,
             std::chrono::milliseconds limit,
             std::string note);

  /// `proposed` is the tag of the messages if this rank is the first one.
  Launch gather_shapes(const Communicator& collectives, std::uint32_t proposed);
  /// Throws if the tensors of the ranks have different shapes.
  Launch exchange_entries(const Communicator& messages);
  Launch add();

 private:
  /// What a rank tells the others, in words of 64 bits.
  struct Shape {
    std::int64_t tag = 0;
    std::int64_t entries = 0;
    std::int64_t type = 0;
    std::int64_t sparse_dimensions = 0;
    std::int64_t dimensions = 0;
    std::array<std::int64_t, kMostDimensions> sizes{};

    bool is_like(const Shape& other) const noexcept;
    std::string text() const;
  };

  std::span<Shape> shapes() const;

  const at::Tensor tensor_;
  const bool is_average_;
  const std::chrono::milliseconds limit_;
  const std::string note_;
  at::Tensor own_indices_, own_values_;  ///< One row for each entry of this rank.
  at::Tensor indices_, values_;          ///< Those of all ranks, one after the other.
  at::Tensor shapes_;                    ///< A Shape for each rank.
};

}  // namespace xylem::pytorch
