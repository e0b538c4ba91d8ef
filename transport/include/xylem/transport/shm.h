// SPDX-License-Identifier: Apache-2.0
//
// shm: tagged messages through memory that the processes of one host share. Every transport owns
// one segment (a memfd without a name, allocated in full when it is made), which it alone writes
// and its peers map to read. Nothing is left behind, however a process ends.
#pragma once

#include "xylem/base/log.h"
#include "xylem/base/status.h"
#include "xylem/transport/transport.h"

#include <cstdint>
#include <memory>

namespace xylem::transport {

/// How large messages are written into shared memory.
enum class ShmWrites : std::uint8_t {
  as_measured,  ///< Into the cache or past it, as each peer is near or far.
  past_cache,   ///< For tests.
};

struct ShmOptions {
  /// Most endpoints of this transport, and most of others to it.
  std::uint32_t endpoints = 1;
  /// Shared memory to use at most; 0: 2 MiB, or more if so many endpoints need it. More slots let
  /// more large messages be under way.
  std::uint64_t bytes = 0;
  ShmWrites writes = ShmWrites::as_measured;
};

/// What a transport made so shares with its peers.
struct ShmSize {
  std::uint64_t bytes = 0;       ///< Of its segment.
  std::uint64_t slot_bytes = 0;  ///< Longer messages come in parts.
};

/// Fails with `exhausted` as make_shm() does, if `options.bytes` has no room for so many endpoints.
Result<ShmSize> shm_size(const ShmOptions& options);

/// Makes the segment. Fails with `exhausted` if the system does not give as much memory, or `bytes`
/// has no room for so many endpoints; with `unsupported` where memory or sockets without a name are
/// denied.
Result<std::unique_ptr<Transport>> make_shm(const ShmOptions& options, const Logger& logger = {});

}  // namespace xylem::transport
