// SPDX-License-Identifier: Apache-2.0
#include "cuda/loaded_kernels.h"

#include "cuda/device_kernels.h"
#include "xylem/base/mutex.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace xylem::execution::cuda {
namespace {

constexpr std::uint32_t kThreads = 256;  ///< Threads of a block.
// Each thread computes one vector, so that many threads load at once.
static_assert(kThreads * 16 == LoadedKernels::kBytesPerBlock);
/// A launch has at most this many blocks for each multiprocessor. This is several times the number
/// of blocks that fit there at once. On an H200, two sources of 256 MiB are reduced 3 % faster than
/// with only as many blocks as fit, and no measured kernel is slower by more than 1 %.
constexpr std::uint32_t kBlocksPerProcessor = 32;

/// The kernels that this process has loaded.
struct Loaded {
  Mutex mutex;
  std::vector<std::weak_ptr<const LoadedKernels>> all XYLEM_LOCKING(guarded_by(mutex));
};

Loaded& loaded() {
  // Never destroyed, since destructors of static objects may still use it.
  // NOLINTNEXTLINE(cppcoreguidelines-owning-memory)
  static auto& of_process = *new Loaded;
  return of_process;
}

}  // namespace

Result<std::shared_ptr<const LoadedKernels>> LoadedKernels::load(
    std::shared_ptr<const Driver> driver,
    CUcontext context,
    CUdevice device,
    std::span<const std::string> names) {
  Loaded& known = loaded();
  const Lock lock(known.mutex);
  std::erase_if(known.all, [](const auto& weak) { return weak.expired(); });
  for (const auto& weak : known.all) {
    auto one = weak.lock();
    if (one != nullptr && one->context_ == context && std::ranges::equal(one->names_, names)) {
      return one;
    }
  }
  const std::shared_ptr<LoadedKernels> made(
      new LoadedKernels(std::move(driver), context, {names.begin(), names.end()}));
  if (Status why = made->set_up(device); !why) {
    const BlockingDriver& blocking = made->driver_->blocking(MayWait{});
    if (made->library_ != nullptr) blocking.cuLibraryUnload(made->library_);
    return why;
  }
  known.all.push_back(made);
  return std::shared_ptr<const LoadedKernels>(made);
}

void LoadedKernels::release(std::shared_ptr<const LoadedKernels> kernels,
                            const NoStreamWaits& proof) {
  const Lock lock(loaded().mutex);  // load() cannot share kernels that are being unloaded.
  if (kernels.use_count() == 1) {
    kernels->driver_->blocking(proof).cuLibraryUnload(kernels->library_);
  }
  kernels.reset();
}

Status LoadedKernels::set_up(CUdevice device) {
  int processors = 0;
  XYLEM_TRY(driver_->check(
      driver_->cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device),
      "cuDeviceGetAttribute"));
  processors_ = static_cast<std::uint32_t>(processors);
  const CUresult result = driver_->blocking(MayWait{}).cuLibraryLoadData(
      &library_, device_kernels().data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
  Status status = driver_->check(result, "cuLibraryLoadData");
  if (result == CUDA_ERROR_NO_BINARY_FOR_GPU || result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION) {
    return failure(Code::unsupported,
                   fmt::format("{}: Xylem was built without machine code for this GPU, and the "
                               "driver is older than the CUDA it was built with; build with "
                               "XYLEM_CUDA_ARCHITECTURES=all, or update the driver",
                               status.message()));
  }
  if (!status) return status;
  for (const std::string& name : names_) {
    XYLEM_TRY(kernels_.emplace_back(), name.empty() ? Result<CUkernel>(nullptr) : find(name));
  }
  // These kernels copy: the bitwise or of one source is the source.
  XYLEM_TRY(copies_[0], find("xylem_reduce_or_uint8"));
  XYLEM_TRY(copies_[1], find("xylem_reduce_or_uint16"));
  XYLEM_TRY(copies_[2], find("xylem_reduce_or_uint32"));
  XYLEM_TRY(copies_[3], find("xylem_reduce_or_uint64"));
  return {};
}

/// Each takes a quarter of the room at most, so that some is left for later ones.
std::uint32_t LoadedKernels::reserve_blocks(std::uint32_t most) const noexcept {
  // So many of any kernel fit on a multiprocessor at once (__launch_bounds__ in kernels.cu).
  constexpr std::uint32_t kAtOnce = 4;
  const std::uint32_t room = processors_ * kAtOnce;
  std::uint32_t before = reserved_;
  for (;;) {
    const std::uint32_t count = std::min(most, (room - before) / 4);
    if (reserved_.compare_exchange_weak(before, before + count)) return count;
  }
}

/// Finds a kernel by its name, and loads it.
Result<CUkernel> LoadedKernels::find(const std::string& name) const {
  CUkernel kernel = nullptr;
  XYLEM_TRY(driver_->check(driver_->cuLibraryGetKernel(&kernel, library_, name.c_str()),
                           "cuLibraryGetKernel"));
  CUfunction function = nullptr;
  XYLEM_TRY(driver_->check(driver_->blocking(MayWait{}).cuKernelGetFunction(&function, kernel),
                           "cuKernelGetFunction"));
  return kernel;
}

CUresult LoadedKernels::copy(CUstream stream,
                             void* target,
                             const void* source,
                             std::uint64_t bytes) const noexcept {
  if (bytes == 0) return CUDA_SUCCESS;
  const auto places =
      reinterpret_cast<std::uintptr_t>(target) | reinterpret_cast<std::uintptr_t>(source) | bytes;
  const auto element = std::min<std::size_t>(std::countr_zero(places), copies_.size() - 1);
  ReduceArguments arguments;
  arguments.target = target;
  arguments.count = bytes >> element;
  arguments.source_count = 1;
  arguments.sources[0] = source;
  return launch_any(stream, copies_[element], bytes, &arguments);
}

CUresult LoadedKernels::launch_any(CUstream stream,
                                   CUkernel kernel,
                                   std::uint64_t bytes,
                                   void* arguments) const noexcept {
  const auto function = reinterpret_cast<CUfunction>(kernel);
  const auto blocks = static_cast<unsigned>(std::clamp<std::uint64_t>(
      (bytes + kBytesPerBlock - 1) / kBytesPerBlock, 1, processors_ * kBlocksPerProcessor));
  void* parameters[] = {arguments};
  return driver_->cuLaunchKernel(function, blocks, 1, 1, kThreads, 1, 1, 0, stream, parameters,
                                 nullptr);
}

}  // namespace xylem::execution::cuda
