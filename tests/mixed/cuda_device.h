// SPDX-License-Identifier: Apache-2.0
//
// A CUDA device for mixed programs, over the driver libcuda.so.1.
#pragma once

#include "cuda/driver.h"
#include "mixed/device.h"

#include <array>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace xylem::test::mixed {

/// Streams read and write the device's memory. When a test releases memory, the last stream that
/// used it overwrites it with garbage. The next request for this stream and size gets the same
/// memory.
class CudaDevice final : public Device {
 public:
  /// Uses device `number` modulo the number of devices. Ends the process if there is no driver.
  explicit CudaDevice(std::uint32_t number);
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;
  ~CudaDevice() override;

  Memory memory() const noexcept override { return {MemoryKind::cuda, number_}; }
  bool has_streams() const noexcept override { return true; }
  std::uint32_t streams() const noexcept override { return kStreams; }
  Stream stream(std::uint32_t number) const noexcept override {
    return {streams_[number], memory()};
  }
  Room take(std::uint64_t bytes, Kind kind, std::uint32_t stream, std::uint32_t last) override;
  void write(const Room& room, std::uint32_t stream) override;
  void read(const Room& room, std::uint32_t stream) override;
  bool synchronize(std::uint32_t stream, std::chrono::seconds limit) override;
  void renew() override;
  std::string misuse() const override;

 private:
  static constexpr std::uint32_t kStreams = 4;
  /// Free memory that is interchangeable: its kind, the stream that may use it, and the logarithm
  /// of its size.
  using Shelf = std::tuple<Kind, std::uint32_t, int>;

  std::byte* allocate(Kind kind, std::uint64_t bytes) const;
  std::byte* take_from(const Shelf& shelf);
  std::byte* carve(Kind kind, std::uint64_t bytes);
  std::shared_ptr<std::byte> take_seen(int size_class);
  void copy(const std::byte* target, const std::byte* source, std::uint64_t bytes, CUstream on);

  std::shared_ptr<const execution::cuda::Driver> driver_;
  decltype(&::cuMemsetD8Async) fill_ = nullptr;
  unsigned long (*misuses_)() = nullptr;  ///< Of the stand-in; null for a GPU's driver.
  const char* (*last_misuse_)() = nullptr;
  int number_ = 0;
  CUcontext context_ = nullptr;
  std::array<CUstream, kStreams> streams_{};  ///< The first is the default stream.
  std::map<Shelf, std::vector<std::byte*>> free_;
  /// Large allocations that are divided into parts, and the used bytes of the last one.
  struct Slabs {
    std::vector<std::byte*> all;
    std::uint64_t used = 0, size = 0;
  };
  Slabs device_, pinned_;
  /// Allocations of calls that have ended. renew() frees them when no stream waits: a free would
  /// wait for such streams, and block all threads in the meantime.
  std::vector<std::byte*> given_up_;
};

}  // namespace xylem::test::mixed
