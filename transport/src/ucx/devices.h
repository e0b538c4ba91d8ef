// SPDX-License-Identifier: Apache-2.0
//
// What UCX finds on this machine, asked of its lower layer, which also says of what kind each
// resource is.
#pragma once

#include "xylem/base/status.h"
#include "xylem/transport/ucx.h"

#include <cstdint>
#include <vector>

namespace xylem::transport::ucx {

/// A resource with its kind; by kind, not by name, shared memory is kept off the network.
struct Resource {
  enum class Kind : std::uint8_t { network, shared_memory, accelerator, self };
  UcxDevice device;
  Kind kind = Kind::network;
};

Result<std::vector<Resource>> query_resources();

}  // namespace xylem::transport::ucx
