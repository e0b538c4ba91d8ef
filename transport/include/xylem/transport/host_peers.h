// SPDX-License-Identifier: Apache-2.0
//
// HostPeers: how processes of one host, which share its cores, coordinate who runs. Only the shm
// transport has this interface (Transport::host_peers()).
#pragma once

namespace xylem::transport {

/// Lives as long as its transport, with the same rules about threads.
class HostPeers {
 public:
  /// True: from now on, sleeping peers are not woken when something has been written for them, so
  /// that they find more when they are woken. False: peers whose wake was postponed are woken now,
  /// and later ones without delay. Call it with false before waiting for peers.
  virtual void hold_wakes(bool held) noexcept = 0;

  /// Shows all peers whether this process computes, and so needs its core.
  virtual void show_computing(bool computes) noexcept = 0;
  /// Whether any peer shows that it computes. Peers that have ended, or whose endpoints are closed,
  /// do not count.
  virtual bool do_peers_compute() const noexcept = 0;

 protected:
  ~HostPeers() = default;
};

}  // namespace xylem::transport
