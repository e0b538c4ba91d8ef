// SPDX-License-Identifier: Apache-2.0
//
// A network between two Hosts that delays, reorders or drops packets, or falls silent. A thread of
// the test forwards the packets between the TUN devices of the hosts.
#pragma once

#include "process/hosts.h"
#include "xylem/base/unique_fd.h"

#include <array>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>

namespace xylem::test {

class BadWire {
 public:
  struct Faults {
    std::chrono::milliseconds delay{0};   ///< In each direction.
    std::chrono::milliseconds jitter{0};  ///< Largest random extra delay, which reorders packets.
    double loss = 0;                      ///< Fraction of packets that are lost.
  };

  /// Needs /dev/net/tun. The hosts must outlive this object.
  BadWire(const Hosts& hosts, const Faults& faults);
  BadWire(const BadWire&) = delete;
  BadWire& operator=(const BadWire&) = delete;
  ~BadWire();

  /// True if the TUN devices could be created.
  bool ok() const { return ok_; }
  /// The address of a host in this network.
  static std::string address(std::size_t host) { return host == 0 ? "10.97.0.1" : "10.97.0.2"; }
  /// While `is_silent` is true, drops all packets. The hosts get no notice of this.
  void set_silent(bool is_silent) { is_silent_ = is_silent; }

 private:
  void carry();

  const Faults faults_;
  std::array<UniqueFd, Hosts::kCount> devices_;
  UniqueFd stop_;
  bool ok_ = false;
  std::atomic<bool> is_silent_ = false;
  std::thread thread_;
};

}  // namespace xylem::test
