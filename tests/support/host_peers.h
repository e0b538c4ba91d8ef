// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "xylem/transport/host_peers.h"

namespace xylem::test {

/// The peers of a rank that is alone on its host.
class NoHostPeers : public transport::HostPeers {
 public:
  void hold_wakes(bool /*held*/) noexcept override {}
  void show_computing(bool /*computes*/) noexcept override {}
  bool do_peers_compute() const noexcept override { return false; }
};

}  // namespace xylem::test
