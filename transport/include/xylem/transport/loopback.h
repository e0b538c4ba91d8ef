// SPDX-License-Identifier: Apache-2.0
//
// loopback: a transport within one process, for ranks that are threads. With a seed, it delivers
// and completes messages in a pseudo-random order, so that tests cover interleavings that are rare
// on a real machine.
#pragma once

#include "xylem/base/status.h"
#include "xylem/transport/transport.h"

#include <cstdint>
#include <memory>

namespace xylem::transport {

struct LoopbackOptions {
  std::uint64_t seed =
      /// 0: messages arrive and complete in order. Any other value seeds the order in which
      /// progress() delivers and completes them.
      0;
  /// The send of a message up to this size completes before the message is received. The send of a
  /// larger message completes when the message is received.
  std::uint64_t eager_bytes = 8192;
};

/// The medium that a set of loopback transports shares. Thread-safe.
class LoopbackFabric {
 public:
  explicit LoopbackFabric(LoopbackOptions options = {});
  ~LoopbackFabric();
  LoopbackFabric(const LoopbackFabric&) = delete;
  LoopbackFabric& operator=(const LoopbackFabric&) = delete;

  /// A new transport on this medium. It may outlive the fabric object.
  std::unique_ptr<Transport> attach();

 private:
  struct Medium;
  std::shared_ptr<Medium> medium_;
};

}  // namespace xylem::transport
