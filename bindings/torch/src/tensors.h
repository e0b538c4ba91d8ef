// SPDX-License-Identifier: Apache-2.0
//
// Tensors as Xylem's buffers. What a call moves is a tensor's elements in logical order, so tensors
// that are not contiguous, and lists of tensors that do not lie behind each other, go through a
// contiguous copy.
#pragma once

#include "xylem/xylem.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

namespace xylem::pytorch {

using Tensors = std::vector<at::Tensor>;

/// Refuses what is not dense and in the CPU's memory. `call` names the operation in the error.
void check_tensor(std::string_view call, const at::Tensor& tensor);
/// check_tensor() of each, and that all have the same element type.
void check_tensors(std::string_view call, const Tensors& tensors);
/// The only tensor of a list that c10d makes of one.
at::Tensor& only(std::string_view call, Tensors& tensors);

/// Whether the tensor's memory holds its elements in logical order, as they are.
bool is_plain(const at::Tensor& tensor);

/// A plain tensor's elements, to be moved. Complex numbers are pairs, types that Xylem does
/// not know are bytes.
Buffer moved(const at::Tensor& tensor);
/// The same, to be reduced by `op`: refuses types on which it is not defined.
Buffer reduced(const at::Tensor& tensor, const ReduceOp& op);
/// Numbers of moved()'s elements in one of the tensor's.
std::uint64_t elements_per_item(const at::Tensor& tensor);
/// PREMUL_SUM takes its factor along.
ReduceOp reduction(const c10d::ReduceOp& op);

/// Memory that holds the tensors' elements behind each other: theirs where they lie so, else fresh,
/// not filled.
class Packed {
 public:
  explicit Packed(const Tensors& parts);

  const at::Tensor& flat() const noexcept { return flat_; }
  /// Whether it is the parts' own memory.
  bool is_view() const noexcept { return is_view_; }
  /// Copies the parts into fresh memory.
  void pack(const Tensors& parts) const;
  /// Where one of the parts is.
  at::Tensor part(const Tensors& parts, std::size_t which) const;
  /// Elements of each part, as moved() counts them.
  std::vector<std::uint64_t> counts(const Tensors& parts) const;

 private:
  at::Tensor flat_;
  bool is_view_ = false;
};

}  // namespace xylem::pytorch
