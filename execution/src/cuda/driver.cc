// SPDX-License-Identifier: Apache-2.0
#include "cuda/driver.h"

#include <fmt/format.h>

#include <dlfcn.h>

namespace xylem::execution::cuda {

namespace {

Status unsupported(std::string_view why) {
  return failure(Code::unsupported, fmt::format("no CUDA device can be used: {}", why));
}

std::string version_name(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

/// The functions by which all other functions are found.
struct Entry {
  decltype(&::cuDriverGetVersion) version = nullptr;
  decltype(&::cuGetProcAddress) find = nullptr;  // cuGetProcAddress_v2

  explicit Entry(void* library) {
    version = reinterpret_cast<decltype(version)>(::dlsym(library, "cuDriverGetVersion"));
    find = reinterpret_cast<decltype(find)>(::dlsym(library, "cuGetProcAddress_v2"));
  }
};

/// Fills in a member of Driver or BlockingDriver. False if the driver does not have the function.
template <class Function>
bool find(const Entry& entry, const char* name, CountedFunction<Function>& function) {
  void* address = nullptr;
  CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  const CUresult result =
      entry.find(name, &address, kOldestDriver, CU_GET_PROC_ADDRESS_DEFAULT, &found);
  function.set(reinterpret_cast<Function>(address));
  return result == CUDA_SUCCESS && address != nullptr;
}

}  // namespace

Result<std::shared_ptr<const Driver>> Driver::open(const std::string& library) {
  void* const handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) return unsupported(fmt::format("there is no driver ({})", ::dlerror()));
  const Entry entry(handle);
  auto driver = std::make_shared<Driver>();
  if (entry.version == nullptr || entry.version(&driver->version) != CUDA_SUCCESS) {
    return unsupported(fmt::format("{} does not tell its version", library));
  }
  if (driver->version < kOldestDriver || entry.find == nullptr) {
    return unsupported(fmt::format("the driver is for CUDA {}; Xylem needs {} or newer",
                                   version_name(driver->version), version_name(kOldestDriver)));
  }
  const char* missing = nullptr;
  const auto fill_in = [&](const char* name, auto& function) {
    if (missing == nullptr && !find(entry, name, function)) missing = name;
  };
#define XYLEM_CUDA(name) fill_in(#name, table->name);
  {
    Driver* const table = driver.get();
#include "cuda/driver_functions.inc"
    fill_in("cuStreamGetCaptureInfo", table->capture_info);
  }
  {
    BlockingDriver* const table = &driver->blocking_;
#include "cuda/blocking_functions.inc"
  }
#undef XYLEM_CUDA
  if (missing != nullptr) {
    return unsupported(
        fmt::format("the driver for CUDA {} has no {}", version_name(driver->version), missing));
  }
  if (const CUresult result = driver->cuInit(0); result != CUDA_SUCCESS) {
    return unsupported(driver->check(result, "cuInit").message());
  }
  return std::shared_ptr<const Driver>(std::move(driver));
}

Result<CUdevice> Driver::device(int number) const {
  CUdevice device = 0;
  const CUresult result = cuDeviceGet(&device, number);
  if (result == CUDA_SUCCESS) return device;
  if (result != CUDA_ERROR_INVALID_DEVICE) return check(result, "cuDeviceGet");
  int count = 0;
  XYLEM_TRY(check(cuDeviceGetCount(&count), "cuDeviceGetCount"));
  return failure(Code::unsupported,
                 fmt::format("there is no CUDA device {}; this process sees {}", number, count));
}

Result<std::optional<cuuint64_t>> Driver::capture_of(CUstream stream) const {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  XYLEM_TRY(check(capture_info(stream, &status, &id, nullptr, nullptr, nullptr),
                  "cuStreamGetCaptureInfo"));
  if (status == CU_STREAM_CAPTURE_STATUS_NONE) return std::optional<cuuint64_t>();
  return std::optional(id);
}

Status Driver::check(CUresult result, std::string_view function) const {
  if (result == CUDA_SUCCESS) return {};
  const char *name = nullptr, *text = nullptr;
  if (cuGetErrorName(result, &name) != CUDA_SUCCESS) name = "an unknown error";
  if (cuGetErrorString(result, &text) != CUDA_SUCCESS) text = "no text";
  Code code = Code::internal;
  if (result == CUDA_ERROR_OUT_OF_MEMORY) code = Code::exhausted;
  if (result == CUDA_ERROR_NOT_SUPPORTED) code = Code::unsupported;
  return failure(code, fmt::format("CUDA's {} failed: {} ({})", function, text, name));
}

}  // namespace xylem::execution::cuda
