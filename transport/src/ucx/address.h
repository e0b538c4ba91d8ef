// SPDX-License-Identifier: Apache-2.0
//
// The address of a UCX transport: a UCX worker address after a header. The header is used to check
// that the address is undamaged and belongs to the same reach, since UCX itself does not check an
// address.
//
//   | magic 4 | version 2 | reach 2 | checksum 8 | worker address … |
#pragma once

#include "xylem/base/status.h"
#include "xylem/transport/ucx.h"

#include <cstddef>
#include <span>
#include <vector>

namespace xylem::transport::ucx {

std::vector<std::byte> wrap_address(UcxReach reach, std::span<const std::byte> worker_address);

/// The worker address in `address`. Fails with `invalid_argument` if the bytes are damaged or
/// belong to another reach.
Result<std::span<const std::byte>> unwrap_address(UcxReach reach,
                                                  std::span<const std::byte> address);

}  // namespace xylem::transport::ucx
