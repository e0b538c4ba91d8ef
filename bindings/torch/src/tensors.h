// SPDX-License-Identifier: Apache-2.0
//
// Tensors as Xylem's buffers. A call transfers the elements of a tensor in logical order. So
// tensors that are not contiguous, and lists of tensors that are not adjacent, are copied into
// contiguous memory.
#pragma once

#include "xylem/xylem.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

namespace xylem::pytorch {

using Tensors = std::vector<at::Tensor>;

/// Throws unless the tensor is dense, and on the CPU or a device that the backend serves. `call`
/// names the operation in the error.
void check_tensor(std::string_view call, const at::Tensor& tensor);
/// check_tensor() for each tensor, and a check that all have one type and are on one device.
void check_tensors(std::string_view call, const Tensors& tensors);
/// The single tensor of a list that c10d passes. Throws if the list does not have exactly one
/// tensor.
at::Tensor& only(std::string_view call, Tensors& tensors);

/// Whether the tensor's memory contains its elements in logical order, and without a pending
/// conjugation or negation.
bool is_plain(const at::Tensor& tensor);

/// The memory of a plain tensor, for an operation that transfers elements without reducing them.
/// Each complex number counts as two elements. Elements of types that Xylem does not know count as
/// bytes.
Buffer transfer_buffer(const at::Tensor& tensor);
/// Like transfer_buffer(), but for a reduction by `op`. Throws for types for which `op` is not
/// defined.
Buffer reduction_buffer(const at::Tensor& tensor, const ReduceOp& op);
/// The number of elements in transfer_buffer() for each element of the tensor: 2 for complex types,
/// the size in bytes for types that Xylem does not know, otherwise 1.
std::uint64_t elements_per_item(const at::Tensor& tensor);
/// Converts torch's reduction to Xylem's, with the factor of PREMUL_SUM.
ReduceOp reduction(const c10d::ReduceOp& op);

/// Memory with the elements of all tensors, one after the other: their own memory if they are
/// adjacent in it, otherwise new memory, which is not filled.
class Packed {
 public:
  explicit Packed(const Tensors& parts);

  const at::Tensor& flat() const noexcept { return flat_; }
  /// Whether this is the tensors' own memory.
  bool is_view() const noexcept { return is_view_; }
  /// Copies the tensors into the memory if it is new memory.
  void pack(const Tensors& parts) const;
  /// The part of the memory for the tensor `parts[which]`.
  at::Tensor part(const Tensors& parts, std::size_t which) const;
  /// For each of the tensors, its number of elements in transfer_buffer(flat()).
  std::vector<std::uint64_t> counts(const Tensors& parts) const;

 private:
  at::Tensor flat_;
  bool is_view_ = false;
};

}  // namespace xylem::pytorch
