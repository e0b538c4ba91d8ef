// SPDX-License-Identifier: Apache-2.0
//
// Devices of tensors, and their streams. The backend accesses streams through torch's
// device-neutral interface, so it needs no headers and no libraries of any device: one binary works
// with torch built for CPUs only and with torch built for CUDA.
#pragma once

#include "xylem/base/mutex.h"
#include "xylem/xylem.h"

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

namespace xylem::pytorch {

/// The memory in which tensors of this device are. None if the backend does not serve the device.
std::optional<Memory> memory_of(const c10::Device& device) noexcept;
/// Makes memory_of() treat the tensors of torch's device type PrivateUse1 as CUDA memory.
void serve_private_device() noexcept;

/// A stream of torch, and the same stream for Xylem.
struct DeviceStream {
  c10::Stream torch;
  Stream xylem;
};

/// This thread's current stream on a device. The device must be one for which memory_of() has a
/// value, and not the CPU.
DeviceStream current_stream(const c10::Device& device);

/// While an object exists, calls of the CUDA driver by this thread do not invalidate captures of
/// CUDA graphs, such as a query of an event. Does nothing if no driver is loaded.
class RelaxedCapture {
 public:
  RelaxedCapture() noexcept { exchange(); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;
  ~RelaxedCapture() { exchange(); }

 private:
  void exchange() noexcept;
  int mode_ = 2;  ///< CU_STREAM_CAPTURE_MODE_RELAXED
};

/// The streams of a group on its devices. Each is taken from torch's pool, with normal priority,
/// when it is first needed. Thread-safe.
class OwnStreams {
 public:
  enum class Purpose : std::uint8_t {
    follow,  ///< Waits for collectives in their order; has copies and events of futures.
    prompt,  ///< Waits for no call, so an event that is recorded on it completes soon.
  };
  DeviceStream get(const c10::Device& device, Purpose purpose);

 private:
  Mutex mutex_;
  std::map<std::pair<c10::DeviceIndex, Purpose>, DeviceStream> streams_
      XYLEM_LOCKING(guarded_by(mutex_));
};

}  // namespace xylem::pytorch
