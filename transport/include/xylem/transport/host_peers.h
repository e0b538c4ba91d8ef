// SPDX-License-Identifier: Apache-2.0
//
// HostPeers: the peers as processes of one host, which share its cores. Of the transports, only
// shared memory knows them as such (Transport::host_peers()).
#pragma once

namespace xylem::transport {

/// That of a transport lives as long as the transport; the same rules of threads hold.
class HostPeers {
 public:
  /// With true, peers that sleep are not woken when something is put in place for them, so that
  /// they find more when they are. With false they are woken, and at once from then on. The caller
  /// must end a hold before it waits for peers.
  virtual void hold_wakes(bool held) noexcept = 0;

  /// Shows all peers whether this process computes, and so needs its core.
  virtual void show_computing(bool computes) noexcept = 0;
  /// Whether a peer shows this. A peer that has ended, or whose endpoints are closed, does not.
  virtual bool do_peers_compute() const noexcept = 0;

 protected:
  ~HostPeers() = default;
};

}  // namespace xylem::transport
