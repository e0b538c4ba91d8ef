// SPDX-License-Identifier: Apache-2.0
//
// PayloadConnection: a connection for payload to a rank that has proven the job's secret, with its
// keys.
#pragma once

#include "xylem/base/unique_fd.h"
#include "xylem/transport/seal.h"

#include <cstdint>

namespace xylem::runtime {

/// Keys of the two directions of one connection, at one of its ends.
struct FrameKeys {
  transport::SealKey outgoing{}, incoming{};
};

struct PayloadConnection {
  std::uint32_t rank = 0;
  UniqueFd socket;
  FrameKeys keys;
};

}  // namespace xylem::runtime
