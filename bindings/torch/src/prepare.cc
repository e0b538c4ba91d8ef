// SPDX-License-Identifier: Apache-2.0
#include "prepare.h"

#include "failure.h"

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <functional>
#include <utility>

namespace xylem::pytorch {

at::Tensor read_from(const at::Tensor& tensor, StartedCall& begun) {
  at::Tensor memory = tensor;
  if (!is_plain(tensor)) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    memory = at::empty(tensor.sizes(), tensor.options());
    memory.copy_(tensor);
  }
  begun.kept.push_back(memory);
  return memory;
}

at::Tensor write_to(const at::Tensor& tensor, StartedCall& begun) {
  begun.outputs.push_back(tensor);
  if (is_plain(tensor)) return tensor;
  at::Tensor memory = at::empty(tensor.sizes(), tensor.options());
  begun.copies.push_back({memory, tensor});
  return memory;
}

at::Tensor update(const at::Tensor& tensor, StartedCall& begun) {
  if (!is_plain(tensor)) return update_apart(tensor, begun);
  begun.outputs.push_back(tensor);
  return tensor;
}

at::Tensor update_apart(const at::Tensor& tensor, StartedCall& begun) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  at::Tensor memory = at::empty(tensor.sizes(), tensor.options());
  memory.copy_(tensor);
  begun.outputs.push_back(tensor);
  begun.copies.push_back({memory, tensor});
  return memory;
}

std::vector<bool> overlapping(const Tensors& tensors) {
  std::vector<bool> marks(tensors.size(), false);
  std::vector<std::size_t> order;
  const auto begin = [&](std::size_t i) {
    return static_cast<const std::byte*>(tensors[i].const_data_ptr());
  };
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    // update() copies a tensor that is not plain to new memory before the operations begin, so such
    // a tensor needs no mark.
    if (is_plain(tensors[i]) && tensors[i].numel() > 0) order.push_back(i);
  }
  std::ranges::stable_sort(order, {}, begin);
  const std::byte* end = nullptr;
  for (const std::size_t i : order) {
    marks[i] = begin(i) < end;
    if (!marks[i]) end = begin(i) + tensors[i].nbytes();
  }
  return marks;
}

Packed read_from(const Tensors& parts, StartedCall& begun) {
  Packed packed(parts);
  packed.pack(parts);
  begun.kept.push_back(packed.flat());
  return packed;
}

Packed write_to(const Tensors& parts, StartedCall& begun) {
  Packed packed(parts);
  begun.kept.push_back(packed.flat());
  begun.outputs.insert(begun.outputs.end(), parts.begin(), parts.end());
  for (std::size_t i = 0; !packed.is_view() && i < parts.size(); ++i) {
    begun.copies.push_back({packed.part(parts, i), parts[i]});
  }
  return packed;
}

bool all_equal(const std::vector<std::uint64_t>& counts) {
  return std::ranges::adjacent_find(counts, std::not_equal_to<>()) == counts.end();
}

void check_count(const char* call, const char* what, std::size_t given, std::int64_t expected) {
  if (std::cmp_not_equal(given, expected)) {
    refuse(c10::str(call, ": ", given, " ", what, "; expected ", expected));
  }
}

void check_root_tensor(const char* call, std::int64_t index) {
  if (index != 0) refuse(c10::str(call, ": root tensor ", index, "; a rank gives one, number 0"));
}

void check_alike(const char* call, const at::Tensor& input, const at::Tensor& output) {
  if (input.scalar_type() != output.scalar_type()) {
    refuse(c10::str(call, ": input of ", input.scalar_type(), ", output of ", output.scalar_type(),
                    "; both must have one type"));
  }
  if (input.device() != output.device()) {
    refuse(c10::str(call, ": input on ", input.device(), ", output on ", output.device(),
                    "; both must be on one device: move one with to()"));
  }
}

void check_one_device(const char* call, const Tensors& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.device() == tensors.front().device()) continue;
    refuse(c10::str(call, ": tensors on ", tensors.front().device(), " and ", tensor.device(),
                    " in one call; all must be on one device: move them with to()"));
  }
}

void check_same_elements(const char* call, const Tensors& tensors, std::int64_t expected) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() != expected) {
      refuse(c10::str(call, ": a tensor of ", tensor.numel(), " elements in a list, another of ",
                      expected, "; all must have the same number"));
    }
  }
}

void check_parts(const char* call,
                 const char* part_name,
                 const at::Tensor& part,
                 const char* whole_name,
                 const at::Tensor& whole,
                 int size) {
  if (whole.numel() == part.numel() * size) return;
  refuse(c10::str(call, ": ", part_name, " of ", part.numel(), " elements, ", whole_name, " of ",
                  whole.numel(), "; the ", whole_name, " must have ", size, " times as many"));
}

}  // namespace xylem::pytorch
