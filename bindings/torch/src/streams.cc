// SPDX-License-Identifier: Apache-2.0
#include "streams.h"

#include "failure.h"

#include <c10/core/DeviceType.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/StringUtil.h>
#include <dlfcn.h>
#include <pybind11/pybind11.h>

#include <atomic>
#include <cstdint>
#include <unordered_map>

namespace xylem::pytorch {
namespace {

namespace py = pybind11;

std::atomic<bool> serves_private_device{false};

/// The driver's handle of a stream, which torch's Python classes report. Each stream is queried
/// once.
[[maybe_unused]] void* handle_by_python(const c10::Stream& stream) {
  static Mutex mutex;
  // Never destroyed, since threads may make calls until the process ends.
  // NOLINTNEXTLINE(cppcoreguidelines-owning-memory)
  static auto* const kKnown XYLEM_LOCKING(pt_guarded_by(mutex)) =
      new std::unordered_map<c10::Stream, void*>;
  {
    const Lock lock(mutex);
    if (const auto found = kKnown->find(stream); found != kKnown->end()) return found->second;
  }
  void* handle = nullptr;
  {
    const py::gil_scoped_acquire python;
    const std::string device = c10::DeviceTypeName(stream.device_type(), /*lower_case=*/true);
    const py::object made =
        py::module_::import("torch")
            .attr(device.c_str())
            .attr("Stream")(py::arg("stream_id") = stream.id(),
                            py::arg("device_index") = stream.device_index(),
                            py::arg("device_type") = static_cast<int>(stream.device_type()));
    const auto number = made.attr("cuda_stream").cast<std::uintptr_t>();
    handle = reinterpret_cast<void*>(number);  // NOLINT(performance-no-int-to-ptr): so is Python's
  }
  const Lock lock(mutex);
  return kKnown->emplace(stream, handle).first->second;
}

/// The driver's handle of a stream. Torch has Stream::native_handle() since version 2.10.
template <typename TorchStream>
void* handle_of(const TorchStream& stream) {
  if constexpr (requires { stream.native_handle(); }) {
    return stream.native_handle();
  } else {
    return handle_by_python(stream);
  }
}

DeviceStream known_to_both(const c10::Stream& stream) {
  const auto memory = memory_of(stream.device());
  if (!memory) refuse(c10::str("streams of ", stream.device(), " are not served"));
  return {stream, {handle_of(stream), *memory}};
}

}  // namespace

std::optional<Memory> memory_of(const c10::Device& device) noexcept {
  if (device.is_cpu()) return Memory{};
  const bool is_cuda = device.is_cuda() || (device.is_privateuseone() &&
                                            serves_private_device.load(std::memory_order_relaxed));
  if (!is_cuda) return std::nullopt;
  return Memory{MemoryKind::cuda, device.index()};
}

void serve_private_device() noexcept { serves_private_device = true; }

void RelaxedCapture::exchange() noexcept {
  using Exchange = int(int*);
  static auto* const kExchange = [] {
    void* const driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    constexpr const char* kName = "cuThreadExchangeStreamCaptureMode";
    return reinterpret_cast<Exchange*>(driver == nullptr ? nullptr : ::dlsym(driver, kName));
  }();
  if (kExchange != nullptr) kExchange(&mode_);
}

DeviceStream current_stream(const c10::Device& device) {
  return known_to_both(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

DeviceStream OwnStreams::get(const c10::Device& device, Purpose purpose) {
  {
    const Lock lock(mutex_);
    const auto place = streams_.find({device.index(), purpose});
    if (place != streams_.end()) return place->second;
  }
  // The mutex is not held here, since known_to_both() may acquire Python's lock. So two threads may
  // both get a stream from the pool; the second stream is not used.
  const c10::impl::VirtualGuardImpl guard(device.type());
  const DeviceStream made = known_to_both(guard.getStreamFromGlobalPool(device));
  const Lock lock(mutex_);
  return streams_.emplace(std::pair(device.index(), purpose), made).first->second;
}

}  // namespace xylem::pytorch
