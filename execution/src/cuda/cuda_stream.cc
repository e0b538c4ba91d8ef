// SPDX-License-Identifier: Apache-2.0
#include "xylem/execution/cuda_stream.h"

#include "cuda/driver.h"

#include <utility>

namespace xylem::execution {

namespace {

class OwnStream final : public CudaStream {
 public:
  explicit OwnStream(std::shared_ptr<const cuda::Driver> driver) noexcept
      : driver_(std::move(driver)) {}
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  ~OwnStream() override {
    if (context_ == nullptr) return;
    if (stream_ != nullptr) {
      const cuda::CurrentContext current(*driver_, context_);
      driver_->cuStreamSynchronize(stream_);
      driver_->cuStreamDestroy(stream_);
    }
    driver_->cuDevicePrimaryCtxRelease(device_);
  }

  Status open(int device) {
    XYLEM_TRY(device_, driver_->device(device));
    XYLEM_TRY(driver_->check(driver_->cuDevicePrimaryCtxRetain(&context_, device_),
                             "cuDevicePrimaryCtxRetain"));
    const cuda::CurrentContext current(*driver_, context_);
    XYLEM_TRY(driver_->check(current.result(), "cuCtxPushCurrent"));
    int least = 0, greatest = 0;
    XYLEM_TRY(driver_->check(driver_->cuCtxGetStreamPriorityRange(&least, &greatest),
                             "cuCtxGetStreamPriorityRange"));
    return driver_->check(
        driver_->cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, least),
        "cuStreamCreateWithPriority");
  }

  void* handle() const noexcept override { return stream_; }

  Status copy(void* target, const void* source, std::uint64_t bytes) override {
    if (bytes == 0) return {};
    const cuda::CurrentContext current(*driver_, context_);
    XYLEM_TRY(driver_->check(current.result(), "cuCtxPushCurrent"));
    XYLEM_TRY(driver_->check(
        driver_->cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(target),
                               reinterpret_cast<CUdeviceptr>(source), bytes, stream_),
        "cuMemcpyAsync"));
    return driver_->check(driver_->cuStreamSynchronize(stream_), "cuStreamSynchronize");
  }

  Status synchronize() override {
    const cuda::CurrentContext current(*driver_, context_);
    XYLEM_TRY(driver_->check(current.result(), "cuCtxPushCurrent"));
    return driver_->check(driver_->cuStreamSynchronize(stream_), "cuStreamSynchronize");
  }

 private:
  const std::shared_ptr<const cuda::Driver> driver_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
};

}  // namespace

Result<int> count_cuda_devices() {
  XYLEM_TRY(const auto driver, cuda::Driver::open());
  int count = 0;
  XYLEM_TRY(driver->check(driver->cuDeviceGetCount(&count), "cuDeviceGetCount"));
  return count;
}

Result<std::unique_ptr<CudaStream>> CudaStream::make(int device) {
  XYLEM_TRY(auto driver, cuda::Driver::open());
  auto stream = std::make_unique<OwnStream>(std::move(driver));
  XYLEM_TRY(stream->open(device));
  return std::unique_ptr<CudaStream>(std::move(stream));
}

}  // namespace xylem::execution
