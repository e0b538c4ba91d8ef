// SPDX-License-Identifier: Apache-2.0
//
// HostPeers: how the processes of one host coordinate their wake-ups and the use of the host's
// cores. Only the shm transport has this interface (Transport::host_peers()).
#pragma once

namespace xylem::transport {

/// Belongs to its transport, and has the same rules about threads.
class HostPeers {
 public:
  /// hold_wakes(true) postpones wake-ups: data that is written for a sleeping peer does not wake
  /// it, so that the peer finds more data when it wakes. hold_wakes(false) performs the postponed
  /// wake-ups, and ends the postponement. Call hold_wakes(false) before waiting for peers.
  virtual void hold_wakes(bool held) noexcept = 0;

  /// Publishes to all peers whether this process computes, and so needs its core.
  virtual void show_computing(bool computes) noexcept = 0;
  /// Whether any peer has published that it computes. Peers that have ended, or whose endpoints are
  /// closed, do not count.
  virtual bool do_peers_compute() const noexcept = 0;

 protected:
  ~HostPeers() = default;
};

}  // namespace xylem::transport
