// SPDX-License-Identifier: Apache-2.0
//
// Preparation of calls: tensors are checked and turned into buffers. All checks that may reject a
// call are made here, before any operation that uses the tensors begins.
#pragma once

#include "task.h"
#include "tensors.h"
#include "xylem/xylem.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace xylem::pytorch {

/// The buffers that an operation reads and writes.
struct Sides {
  Buffer input, output;
};

/// For an input: the tensor itself if its memory has the elements in logical order, otherwise a
/// contiguous copy, which `begun` keeps alive.
at::Tensor read_from(const at::Tensor& tensor, StartedCall& begun);
/// For an output of the call: the tensor itself if its memory has the elements in logical order,
/// otherwise new memory, from which the elements are copied to the tensor after the operation
/// (OutputCopy).
at::Tensor write_to(const at::Tensor& tensor, StartedCall& begun);
/// Like write_to(), for a tensor that is both input and output: new memory is filled with the
/// tensor's elements.
at::Tensor update(const at::Tensor& tensor, StartedCall& begun);
/// Like update(), but always returns new memory.
at::Tensor update_apart(const at::Tensor& tensor, StartedCall& begun);
/// Like the functions above, for lists of tensors, which are treated as one tensor.
Packed read_from(const Tensors& parts, StartedCall& begun);
Packed write_to(const Tensors& parts, StartedCall& begun);

/// Marks so many of the tensors that no two tensors without a mark overlap in memory.
std::vector<bool> overlapping(const Tensors& tensors);

/// Whether all ranks' parts have the same number of elements.
bool all_equal(const std::vector<std::uint64_t>& counts);

// The following functions throw if the check fails; `call` names the operation in the error.
void check_count(const char* call, const char* what, std::size_t given, std::int64_t expected);
/// Checks that the index of the root's tensor is 0, since each rank passes a single tensor.
void check_root_tensor(const char* call, std::int64_t index);
/// Checks that the input and the output are of one type and on one device.
void check_alike(const char* call, const at::Tensor& input, const at::Tensor& output);
void check_one_device(const char* call, const Tensors& tensors);
void check_same_elements(const char* call, const Tensors& tensors, std::int64_t expected);
/// Checks that `whole` has as many elements as the `part`s of all ranks together. The names are
/// used in the error.
void check_parts(const char* call,
                 const char* part_name,
                 const at::Tensor& part,
                 const char* whole_name,
                 const at::Tensor& whole,
                 int size);

}  // namespace xylem::pytorch
