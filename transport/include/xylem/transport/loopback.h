// SPDX-License-Identifier: Apache-2.0
//
// loopback: a transport in memory, for ranks that are threads of one process. Completions are
// reordered by a seed, so tests meet interleavings that a machine shows once a year.
#pragma once

#include "xylem/base/status.h"
#include "xylem/transport/transport.h"

#include <cstdint>
#include <memory>

namespace xylem::transport {

struct LoopbackOptions {
  std::uint64_t seed =
      0;  ///< 0: in order. Otherwise progress() delivers and completes in an order drawn from it.
  /// Messages up to this size complete at the sender before they are received; larger ones wait for
  /// their receive.
  std::uint64_t eager_bytes = 8192;
};

/// The medium that a set of loopback transports shares. Thread-safe.
class LoopbackFabric {
 public:
  explicit LoopbackFabric(LoopbackOptions options = {});
  ~LoopbackFabric();
  LoopbackFabric(const LoopbackFabric&) = delete;
  LoopbackFabric& operator=(const LoopbackFabric&) = delete;

  /// A new transport on this medium; may outlive the fabric object.
  std::unique_ptr<Transport> attach();

 private:
  struct Medium;
  std::shared_ptr<Medium> medium_;
};

}  // namespace xylem::transport
