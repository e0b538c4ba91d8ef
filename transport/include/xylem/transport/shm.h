// SPDX-License-Identifier: Apache-2.0
//
// shm: tagged messages through shared memory, between the processes of one host. Every transport
// owns one segment: an unnamed memfd, allocated in full when it is made. Only its owner writes it;
// the peers map it to read. Nothing is left behind, however a process ends.
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
  as_measured,   ///< With ordinary or non-temporal stores, whichever is faster for the peer.
  non_temporal,  ///< Always with non-temporal stores. Only tests use this.
};

struct ShmOptions {
  /// The most endpoints that this transport can have, and the most that other transports can have
  /// to it.
  std::uint32_t endpoints = 1;
  /// The size of the shared memory. With 0 it is 2 MiB, or more if the number of endpoints requires
  /// it. More memory allows more large messages to be in flight.
  std::uint64_t bytes = 0;
  ShmWrites writes = ShmWrites::as_measured;
  /// If set, device memory may be sent. Peers whose devices reach it read it in place; for other
  /// peers it is copied through the host. The object must outlive the transport.
  DeviceMemory* devices = nullptr;
};

/// The sizes that follow from given options.
struct ShmSize {
  std::uint64_t bytes = 0;  ///< The size of its segment.
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
