// SPDX-License-Identifier: Apache-2.0
//
// HostPeers: the peers as processes of one host, which share its cores. Of the transports, only
// shared memory knows them as such (Transport::host_peers()).
#pragma once

namespace xylem::transport {

/// That of a transport lives as long as the transport; the same rules of threads hold.
class HostPeers {
 public:
  /// True: from now on, sleeping peers are not woken when something has been written for them, so
  /// that they find more when they are woken. False: peers whose wake was postponed are woken now,
  /// and later ones without delay. Call it with false before waiting for peers.
  virtual void hold_wakes(bool held) noexcept = 0;

  /// Shows all peers whether this process computes, and so needs its core.
  virtual void show_computing(bool computes) noexcept = 0;
  /// Whether a peer shows this. A peer that has ended, or whose endpoints are closed, does not.
  virtual bool do_peers_compute() const noexcept = 0;

 protected:
  ~HostPeers() = default;
};

}  // namespace xylem::transport
