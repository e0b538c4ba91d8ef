// SPDX-License-Identifier: Apache-2.0
//
// Torch's operations on the device. This file implements the operations that move memory. All other
// operations run on the CPU, on copies of their arguments.
#include "runtime.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/as_strided_cpu_dispatch.h>
#include <ATen/ops/set_cpu_dispatch.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <pybind11/pybind11.h>
#include <torch/library.h>

#include <optional>

namespace standin {

void register_hooks();

namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

at::Tensor empty(at::IntArrayRef size,
                 std::optional<at::ScalarType> type,
                 std::optional<at::Layout> /*layout*/,
                 std::optional<at::Device> device,
                 std::optional<bool> /*is_pinned*/,
                 std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(c10::device_or_default(device));
  return at::detail::empty_generic(size, &allocator(), kKeys, c10::dtype_or_default(type), format);
}

at::Tensor empty_strided(at::IntArrayRef size,
                         at::IntArrayRef stride,
                         std::optional<at::ScalarType> type,
                         std::optional<at::Layout> /*layout*/,
                         std::optional<at::Device> device,
                         std::optional<bool> /*is_pinned*/) {
  const c10::DeviceGuard guard(c10::device_or_default(device));
  return at::detail::empty_strided_generic(size, stride, &allocator(), kKeys,
                                           c10::dtype_or_default(type));
}

/// Applies conjugation and negation if `flagged` has these flags: the flags mean that its memory
/// does not contain the final values.
at::Tensor with_flags(at::Tensor host, const at::Tensor& flagged) {
  if (flagged.is_conj()) host = host.conj_physical();
  return flagged.is_neg() ? host.neg() : host;
}

/// A contiguous copy of the tensor's memory on the CPU.
at::Tensor to_host(const at::Tensor& tensor) {
  if (!tensor.is_contiguous()) {
    // Copies the whole storage, which contains all elements of the tensor.
    const std::size_t bytes = tensor.storage().nbytes();
    at::Tensor whole = at::empty({static_cast<std::int64_t>(bytes)}, at::kByte);
    copy_to_host(whole.data_ptr(), tensor.storage().data(), bytes, tensor.device().index());
    at::Tensor same = at::empty({0}, tensor.options().device(at::kCPU));
    same.set_(whole.storage(), tensor.storage_offset(), tensor.sizes(), tensor.strides());
    return same.contiguous();
  }
  at::Tensor host = at::empty(tensor.sizes(), tensor.options().device(at::kCPU));
  copy_to_host(host.data_ptr(), tensor.data_ptr(), tensor.nbytes(), tensor.device().index());
  return host;
}

/// Writes `host`, a tensor on the CPU, to `target`. Both have the same sizes and type.
void to_device(const at::Tensor& target, const at::Tensor& host) {
  const c10::DeviceIndex device = target.device().index();
  if (target.is_contiguous()) {
    const at::Tensor plain = host.contiguous();
    return copy_to_device(target.data_ptr(), plain.data_ptr(), plain.nbytes(), device);
  }
  const std::size_t bytes = target.storage().nbytes();
  at::Tensor whole = at::empty({static_cast<std::int64_t>(bytes)}, at::kByte);
  copy_to_host(whole.data_ptr(), target.storage().data(), bytes, device);
  at::Tensor same = at::empty({0}, target.options().device(at::kCPU));
  same.set_(whole.storage(), target.storage_offset(), target.sizes(), target.strides());
  same.copy_(host);
  copy_to_device(target.storage().mutable_data(), whole.data_ptr(), bytes, device);
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& target, bool /*non_blocking*/) {
  if (self.device() == target.device() && self.is_contiguous() && target.is_contiguous() &&
      self.scalar_type() == target.scalar_type() && self.sizes() == target.sizes() &&
      self.is_conj() == target.is_conj() && self.is_neg() == target.is_neg()) {
    copy_within_device(target.data_ptr(), self.data_ptr(), self.nbytes(), self.device().index());
    return target;
  }
  const at::Tensor host = self.is_cpu() ? self : with_flags(to_host(self), self);
  if (target.is_cpu()) {
    target.copy_(host);
  } else {
    const at::Tensor same = host.to(target.scalar_type()).expand(target.sizes());
    to_device(target, with_flags(same.resolve_conj().resolve_neg(), target));
  }
  return target;
}

const at::Tensor& resize(const at::Tensor& self,
                         at::IntArrayRef size,
                         std::optional<at::MemoryFormat> /*format*/) {
  const auto bytes =
      static_cast<std::size_t>(self.storage_offset() + c10::multiply_integers(size)) *
      self.element_size();
  if (bytes > self.storage().nbytes()) {
    at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(self.storage(), bytes);
  }
  self.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  return self;  // NOLINT(bugprone-return-const-ref-from-parameter): as torch asks
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& target) {
  if (self.sizes() != target.sizes()) target.resize_(self.sizes());
  return copy_from(self, target, false);
}

at::Tensor as_strided(const at::Tensor& self,
                      at::IntArrayRef size,
                      at::IntArrayRef stride,
                      std::optional<std::int64_t> offset) {
  return at::cpu::as_strided(self, size, stride, offset);
}

at::Tensor reshape_alias(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride) {
  return at::cpu::as_strided(self, size, stride, self.storage_offset());
}

at::Tensor& set_storage(at::Tensor& self, at::Storage storage) {
  const auto items = static_cast<std::int64_t>(storage.nbytes() / self.element_size());
  return at::cpu::set_(self, std::move(storage), 0, {items}, {1});
}

at::Tensor& set_storage_offset(at::Tensor& self,
                               at::Storage storage,
                               std::int64_t offset,
                               at::IntArrayRef size,
                               at::IntArrayRef stride) {
  return at::cpu::set_(self, std::move(storage), offset, size, stride);
}

at::Scalar local_scalar(const at::Tensor& self) { return with_flags(to_host(self), self).item(); }

void record_tensor(at::Tensor& self, c10::Stream stream) {
  record_stream(self.storage().data_ptr(), stream);
}

void on_host(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  at::native::cpu_fallback(operation, stack);
}

}  // namespace
}  // namespace standin

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&standin::on_host>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", standin::empty);
  library.impl("empty_strided", standin::empty_strided);
  library.impl("as_strided", standin::as_strided);
  library.impl("view", at::native::view);
  library.impl("view_as_real", at::native::view_as_real);
  library.impl("view_as_complex", at::native::view_as_complex);
  library.impl("_reshape_alias", standin::reshape_alias);
  library.impl("resize_", standin::resize);
  library.impl("_copy_from", standin::copy_from);
  library.impl("_copy_from_and_resize", standin::copy_from_and_resize);
  library.impl("_local_scalar_dense", standin::local_scalar);
  library.impl("set_.source_Tensor", at::native::set_tensor_);
  library.impl("set_.source_Storage", standin::set_storage);
  library.impl("set_.source_Storage_storage_offset", standin::set_storage_offset);
  library.impl("record_stream", standin::record_tensor);
}

// copy_from() applies these flags itself. Otherwise torch would resolve them by a copy, that is, by
// calling copy_from().
TORCH_LIBRARY_IMPL(aten, Conjugate, library) {
  library.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, Negative, library) {
  library.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

PYBIND11_MODULE(_standin, module) {
  standin::register_hooks();
  // In torch 2.7, the device must define how operations without derivatives behave.
  constexpr auto kAutograd = c10::DispatchKey::AutogradPrivateUse1;
  if (!c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(kAutograd)) {
    static torch::Library library(torch::Library::IMPL, "_", kAutograd, __FILE__, __LINE__);
    library.fallback(torch::CppFunction::makeFallthrough());
  }
  module.def("device_count", &standin::device_count);
  module.def("current_device", [] { return static_cast<int>(standin::current_device()); });
  module.def("current_stream", [](int device) {
    return standin::current_stream(static_cast<c10::DeviceIndex>(device)).id();
  });
  module.def("begin_capture", &standin::begin_capture);
  module.def("end_capture",
             [] { return reinterpret_cast<std::uintptr_t>(standin::end_capture()); });
  module.def("launch",
             [](std::uintptr_t graph) { standin::launch(reinterpret_cast<CUgraphExec>(graph)); });
  module.def("set_device",
             [](int device) { standin::set_device(static_cast<c10::DeviceIndex>(device)); });
}
