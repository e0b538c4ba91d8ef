// SPDX-License-Identifier: Apache-2.0
//
// The public interface of loopback. A fabric is a registry of mailboxes.
#include "loopback/loopback_transport.h"
#include "xylem/transport/loopback.h"

namespace xylem::transport {

struct LoopbackFabric::Medium : loopback::Registry {
  using Registry::Registry;
};

LoopbackFabric::LoopbackFabric(LoopbackOptions options)
    : medium_(std::make_shared<Medium>(options)) {}

LoopbackFabric::~LoopbackFabric() = default;

std::unique_ptr<Transport> LoopbackFabric::attach() {
  return std::make_unique<loopback::LoopbackTransport>(medium_);
}

}  // namespace xylem::transport
