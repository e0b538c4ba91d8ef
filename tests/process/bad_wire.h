// SPDX-License-Identifier: Apache-2.0
//
// A network between two Hosts that delays packets, changes their order, loses them, or falls
// silent. A thread of the test carries the packets between a TUN device on each host.
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
    std::chrono::milliseconds delay{0};   ///< One way.
    std::chrono::milliseconds jitter{0};  ///< At most so much is added, which changes the order.
    double loss = 0;                      ///< Share of the packets.
  };

  /// Needs /dev/net/tun. The hosts must outlive the wire.
  BadWire(const Hosts& hosts, const Faults& faults);
  BadWire(const BadWire&) = delete;
  BadWire& operator=(const BadWire&) = delete;
  ~BadWire();

  /// True if this machine could make the devices.
  bool ok() const { return ok_; }
  /// The address of a host on this wire.
  static std::string address(std::size_t host) { return host == 0 ? "10.97.0.1" : "10.97.0.2"; }
  /// Drops all packets from now on, or carries them again. Neither host is told.
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
