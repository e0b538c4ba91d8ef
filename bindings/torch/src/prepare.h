// SPDX-License-Identifier: Apache-2.0
//
// What comes before a call begins: its tensors are checked, and laid out as buffers. Everything
// that may be refused is refused here, so no operation has begun yet that would use them.
#pragma once

#include "task.h"
#include "tensors.h"
#include "xylem/xylem.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace xylem::pytorch {

/// What an operation reads and writes.
struct Sides {
  Buffer input, output;
};

/// The tensor's memory if it holds the elements in logical order, else a copy that does. `begun`
/// keeps it.
at::Tensor read_from(const at::Tensor& tensor, Begun& begun);
/// The tensor's memory if it is to hold the elements in logical order, else fresh memory from which
/// they are copied in the end. An output of the call.
at::Tensor write_to(const at::Tensor& tensor, Begun& begun);
/// Both.
at::Tensor update(const at::Tensor& tensor, Begun& begun);
/// Both, in memory of its own in any case.
at::Tensor update_apart(const at::Tensor& tensor, Begun& begun);
/// The same of lists, as one.
Packed read_from(const Tensors& parts, Begun& begun);
Packed write_to(const Tensors& parts, Begun& begun);

/// Of each tensor whether it shares memory with one that is not marked so.
std::vector<bool> overlapping(const Tensors& tensors);

/// Whether the ranks' parts have as many elements.
bool all_equal(const std::vector<std::uint64_t>& counts);

// Refusals; `call` names the operation.
void check_count(const char* call, const char* what, std::size_t given, std::int64_t expected);
/// That the root's tensor is the one that a rank gives.
void check_root_tensor(const char* call, std::int64_t index);
void check_same_type(const char* call, const at::Tensor& a, const at::Tensor& b);
void check_same_elements(const char* call, const Tensors& tensors, std::int64_t expected);
/// That `whole` has as many elements as all ranks' `part`s. They are called so in the error.
void check_parts(const char* call,
                 const char* part_name,
                 const at::Tensor& part,
                 const char* whole_name,
                 const at::Tensor& whole,
                 int size);

}  // namespace xylem::pytorch
