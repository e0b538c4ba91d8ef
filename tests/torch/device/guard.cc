// SPDX-License-Identifier: Apache-2.0
//
// The device as torch's interfaces require it: a guard, with streams and events, and hooks.
#include "runtime.h"

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/Storage.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

namespace standin {
namespace {

/// Evaluates the result of a query of the driver. Throws an exception if it is an error.
bool has_ended(CUresult result, const char* function) {
  if (result == CUDA_ERROR_NOT_READY) return false;
  must(result, function);
  return true;
}

// Some functions are virtual only in some versions of torch.
struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::DeviceType::PrivateUse1; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    set_device(device.index());
    return before;
  }
  c10::Device getDevice() const override { return {type(), current_device()}; }
  void setDevice(c10::Device device) const override { set_device(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    set_device(device.index());
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(device_count());
  }

  c10::Stream getStream(c10::Device device) const override {
    return current_stream(device.index());
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*is_high*/) const override {
    return stream_from_pool(device.index());
  }
  c10::Stream getNewStream(c10::Device device, int /*priority*/) const override {
    return stream_from_pool(device.index());
  }
  c10::Stream exchangeStream(c10::Stream stream) const override { return exchange_stream(stream); }
  // NOLINTNEXTLINE(modernize-use-override): virtual since torch 2.10
  void* getStreamNativeHandle(const c10::Stream stream) const { return handle_of(stream); }
  // NOLINTNEXTLINE(modernize-use-override): virtual since torch 2.15
  bool isStreamCapturing(const c10::Stream& stream) const { return is_capturing(stream); }
  bool queryStream(const c10::Stream& stream) const override {
    use(stream.device_index());
    return has_ended(cuStreamQuery(handle_of(stream)), "cuStreamQuery");
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    use(stream.device_index());
    must(cuStreamSynchronize(handle_of(stream)), "cuStreamSynchronize");
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    use(device);
    must(cuCtxSynchronize(), "cuCtxSynchronize");
  }

  void record(void** event,
              const c10::Stream& stream,
              const c10::DeviceIndex /*device*/,
              const c10::EventFlag /*flag*/) const override {
    use(stream.device_index());
    auto*& recorded = reinterpret_cast<CUevent&>(*event);
    if (recorded == nullptr)
      must(cuEventCreate(&recorded, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    must(cuEventRecord(recorded, handle_of(stream)), "cuEventRecord");
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) return;
    use(stream.device_index());
    must(cuStreamWaitEvent(handle_of(stream), static_cast<CUevent>(event), 0), "cuStreamWaitEvent");
  }
  bool queryEvent(void* event) const override {
    if (event == nullptr) return true;
    use(current_device());  // A thread that has not used a device yet has no context.
    return has_ended(cuEventQuery(static_cast<CUevent>(event)), "cuEventQuery");
  }
  void synchronizeEvent(void* event) const override {
    if (event == nullptr) return;
    use(current_device());
    must(cuEventSynchronize(static_cast<CUevent>(event)), "cuEventSynchronize");
  }
  void destroyEvent(void* event, const c10::DeviceIndex /*device*/) const noexcept override {
    if (event != nullptr) cuEventDestroy(static_cast<CUevent>(event));
  }
  void recordDataPtrOnStream(const c10::DataPtr& memory, const c10::Stream& stream) const override {
    record_stream(memory, stream);
  }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  // NOLINTBEGIN(modernize-use-override): virtual in some versions of torch
  bool isBuilt() const { return true; }
  bool isAvailable() const { return device_count() > 0; }
  // NOLINTEND(modernize-use-override)
  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator(); }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  bool hasPrimaryContext(c10::DeviceIndex /*device*/) const override { return true; }
  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(device_count());
  }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  void setCurrentDevice(c10::DeviceIndex device) const override { set_device(device); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    const c10::DeviceIndex before = current_device();
    set_device(device);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return device < 0 ? current_device() : exchangeDevice(device);
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t bytes) const override {
    const c10::DeviceIndex device = storage.device().index();
    const c10::DeviceIndex before = exchangeDevice(device);
    c10::DataPtr memory = allocator().allocate(bytes);
    copy_within_device(memory.get(), storage.data(), std::min(bytes, storage.nbytes()), device);
    storage.set_data_ptr_noswap(std::move(memory));
    storage.unsafeGetStorageImpl()->set_nbytes(bytes);
    set_device(before);
  }
};

}  // namespace

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

/// Called when the module is loaded.
void register_hooks() {
  static auto& hooks = *new Hooks;
  at::RegisterPrivateUse1HooksInterface(&hooks);
  c10::SetAllocator(c10::DeviceType::PrivateUse1, &allocator());
}

}  // namespace standin
