// SPDX-License-Identifier: Apache-2.0
#include "tensors.h"

#include "failure.h"
#include "streams.h"

#include <ATen/ATen.h>
#include <c10/core/ScalarType.h>
#include <c10/util/StringUtil.h>

#include <optional>

namespace xylem::pytorch {
namespace {

/// An element of a torch type, represented as `count` elements of a Xylem type.
struct Item {
  DataType type = DataType::uint8;
  std::uint64_t count = 1;
};

/// How Xylem represents a numeric type of torch. None if Xylem has no such type.
std::optional<Item> number(at::ScalarType type) {
  switch (type) {
    case at::kChar: return Item{DataType::int8};
    case at::kByte: return Item{DataType::uint8};
    case at::kShort: return Item{DataType::int16};
    case at::kUInt16: return Item{DataType::uint16};
    case at::kInt: return Item{DataType::int32};
    case at::kUInt32: return Item{DataType::uint32};
    case at::kLong: return Item{DataType::int64};
    case at::kUInt64: return Item{DataType::uint64};
    case at::kBool: return Item{DataType::boolean};
    case at::kHalf: return Item{DataType::float16};
    case at::kBFloat16: return Item{DataType::bfloat16};
    case at::kFloat: return Item{DataType::float32};
    case at::kDouble: return Item{DataType::float64};
    case at::kFloat8_e4m3fn: return Item{DataType::float8_e4m3};
    case at::kFloat8_e5m2: return Item{DataType::float8_e5m2};
    case at::kComplexHalf: return Item{DataType::float16, 2};
    case at::kComplexFloat: return Item{DataType::float32, 2};
    case at::kComplexDouble: return Item{DataType::float64, 2};
    default: return std::nullopt;
  }
}

Item item_of(const at::Tensor& tensor) {
  const auto bytes = static_cast<std::uint64_t>(tensor.element_size());
  return number(tensor.scalar_type()).value_or(Item{DataType::uint8, bytes});
}

Buffer buffer(const at::Tensor& tensor, const Item& item) {
  const std::size_t count = static_cast<std::size_t>(tensor.numel()) * item.count;
  if (tensor.is_cpu()) return {tensor.data_ptr(), count, item.type};
  // memory_of() has a value for each tensor that has passed check_tensor().
  return {tensor.data_ptr(), count, item.type, memory_of(tensor.device()).value_or(Memory{})};
}

/// Whether complex numbers can be reduced by reducing their real and imaginary parts
/// separately.
bool is_linear(RedOp op) { return op == RedOp::sum || op == RedOp::avg || op == RedOp::premul_sum; }

/// Whether all tensors are in one storage and each begins where the previous one ends.
bool lie_in_a_row(const Tensors& parts) {
  std::int64_t next = parts.front().storage_offset();
  for (const at::Tensor& part : parts) {
    if (!is_plain(part) || !part.is_alias_of(parts.front()) || part.storage_offset() != next) {
      return false;
    }
    next += part.numel();
  }
  return true;
}

}  // namespace

void check_tensor(std::string_view call, const at::Tensor& tensor) {
  if (!tensor.defined()) refuse(c10::str(call, ": an undefined tensor"));
  if (tensor.is_nested()) refuse(c10::str(call, ": a nested tensor; pass its values()"));
  if (tensor.layout() != at::kStrided) {
    refuse(c10::str(call, ": a tensor of layout ", tensor.layout(),
                    "; only all_reduce takes sparse tensors: convert it with to_dense()"));
  }
  if (!tensor.is_cpu() && !memory_of(tensor.device())) {
    refuse(c10::str(call, ": a tensor on ", tensor.device(),
                    "; the backend serves tensors on cpu and cuda, and on devices that "
                    "xylem.register_device() names: pass tensor.cpu()"));
  }
}

void check_tensors(std::string_view call, const Tensors& tensors) {
  if (tensors.empty()) refuse(c10::str(call, ": an empty list of tensors"));
  for (const at::Tensor& tensor : tensors) {
    check_tensor(call, tensor);
    if (tensor.scalar_type() != tensors.front().scalar_type()) {
      refuse(c10::str(call, ": tensors of ", tensors.front().scalar_type(), " and ",
                      tensor.scalar_type(), " in one list; all must have one type"));
    }
    if (tensor.device() != tensors.front().device()) {
      refuse(c10::str(call, ": tensors on ", tensors.front().device(), " and ", tensor.device(),
                      " in one list; all must be on one device: move them with to()"));
    }
  }
}

at::Tensor& only(std::string_view call, Tensors& tensors) {
  if (tensors.size() != 1) {
    refuse(c10::str(call, ": ", tensors.size(), " tensors; a rank gives one"));
  }
  check_tensor(call, tensors.front());
  return tensors.front();
}

bool is_plain(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

Buffer transfer_buffer(const at::Tensor& tensor) { return buffer(tensor, item_of(tensor)); }

Buffer reduction_buffer(const at::Tensor& tensor, const ReduceOp& op) {
  const auto item = number(tensor.scalar_type());
  if (item && (item->count == 1 || is_linear(op.op))) {
    check(check_reduction(op.op, item->type));
    return buffer(tensor, *item);
  }
  std::rethrow_exception(exception_of(
      failure(Code::unsupported, c10::str(name(op.op), " of ", tensor.scalar_type(),
                                          ": this reduction is not defined on this type"))));
}

std::uint64_t elements_per_item(const at::Tensor& tensor) { return item_of(tensor).count; }

ReduceOp reduction(const c10d::ReduceOp& op) {
  switch (op) {
    case c10d::ReduceOp::SUM: return RedOp::sum;
    case c10d::ReduceOp::AVG: return RedOp::avg;
    case c10d::ReduceOp::PRODUCT: return RedOp::product;
    case c10d::ReduceOp::MIN: return RedOp::min;
    case c10d::ReduceOp::MAX: return RedOp::max;
    case c10d::ReduceOp::BAND: return RedOp::bit_and;
    case c10d::ReduceOp::BOR: return RedOp::bit_or;
    case c10d::ReduceOp::BXOR: return RedOp::bit_xor;
    case c10d::ReduceOp::PREMUL_SUM: {
      const auto* const given =
          static_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
      if (given == nullptr)
        refuse("PREMUL_SUM without a factor: make it with _make_nccl_premul_sum");
      const bool is_tensor = given->tensor_factor.defined();
      return ReduceOp::premul_sum(is_tensor ? given->tensor_factor.item<double>()
                                            : given->double_factor);
    }
    default: refuse(c10::str("reduction ", static_cast<int>(op.op_), " is not one of ReduceOp's"));
  }
}

Packed::Packed(const Tensors& parts) : is_view_(lie_in_a_row(parts)) {
  std::int64_t items = 0;
  for (const at::Tensor& part : parts) items += part.numel();
  flat_ = is_view_ ? parts.front().as_strided({items}, {1}, parts.front().storage_offset())
                   : at::empty({items}, parts.front().options());
}

at::Tensor Packed::part(const Tensors& parts, std::size_t which) const {
  std::int64_t at = 0;
  for (std::size_t i = 0; i < which; ++i) at += parts[i].numel();
  return flat_.narrow(0, at, parts[which].numel()).view(parts[which].sizes());
}

void Packed::pack(const Tensors& parts) const {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  for (std::size_t i = 0; !is_view_ && i < parts.size(); ++i) part(parts, i).copy_(parts[i]);
}

std::vector<std::uint64_t> Packed::counts(const Tensors& parts) const {
  std::vector<std::uint64_t> counts;
  counts.reserve(parts.size());
  for (const at::Tensor& part : parts) {
    counts.push_back(static_cast<std::uint64_t>(part.numel()) * elements_per_item(flat_));
  }
  return counts;
}

}  // namespace xylem::pytorch
