// SPDX-License-Identifier: Apache-2.0
//
// shm: tagged messages through shared memory, between the processes of one host. Every transport
// owns one segment: an unnamed memfd that is allocated in full when the transport is made. Only the
// owner writes to the segment; the peers map it read-only. However a process ends, the system frees
// its segment.
#pragma once

#include "xylem/base/log.h"
#include "xylem/base/status.h"
#include "xylem/transport/device_memory.h"
#include "xylem/transport/transport.h"

#include <cstdint>
#include <memory>

namespace xylem::transport {

/// How large messages are written into shared memory.
enum class ShmWrites : std::uint8_t {
  as_measured,   ///< With ordinary or non-temporal stores, as measurements of each peer decide.
  non_temporal,  ///< Always with non-temporal stores. Only tests use this.
};

struct ShmOptions {
  /// The most endpoints that this transport can make, and also the most endpoints of other
  /// transports that can lead to it.
  std::uint32_t endpoints = 1;
  /// The size of the segment. 0 means 2 MiB, or more if the number of endpoints requires it. With
  /// more memory, more large messages can be in flight.
  std::uint64_t bytes = 0;
  ShmWrites writes = ShmWrites::as_measured;
  /// If set, device memory may be sent. A peer whose device can access the memory reads it in
  /// place; for other peers, the sender's device copies it to the host. The object must outlive the
  /// transport.
  DeviceMemory* devices = nullptr;
};

/// The sizes that result from ShmOptions.
struct ShmSize {
  std::uint64_t bytes = 0;  ///< The size of the segment.
  /// The largest message that fits into one slot; longer messages are sent in parts.
  std::uint64_t slot_bytes = 0;
};

/// The sizes for these options. Fails with `exhausted`, as make_shm() does, if `options.bytes` is
/// too small for the endpoints.
Result<ShmSize> shm_size(const ShmOptions& options);

/// Makes the transport and its segment. Fails with `exhausted` if the system does not provide the
/// memory or if `options.bytes` is too small for the endpoints, and with `unsupported` where the
/// system denies unnamed shared memory or unnamed sockets.
Result<std::unique_ptr<Transport>> make_shm(const ShmOptions& options, const Logger& logger = {});

}  // namespace xylem::transport
