// SPDX-License-Identifier: Apache-2.0
#include "process/bad_wire.h"

#include "xylem/base/clock.h"

#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <queue>
#include <random>
#include <tuple>
#include <vector>

namespace xylem::test {
namespace {

constexpr const char* kDevice = "bad0";

/// A packet on its way to a device.
struct Packet {
  Clock::time_point arrives;
  std::uint64_t number;  ///< The order of packets that arrive at the same time.
  int device;
  std::vector<std::byte> bytes;

  bool operator>(const Packet& other) const {
    return std::tie(arrives, number) > std::tie(other.arrives, other.number);
  }
};

/// Creates the TUN device in the network namespace of the calling thread.
UniqueFd make_device() {
  UniqueFd device(::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC));
  ifreq request{};
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  std::strncpy(request.ifr_name, kDevice, IFNAMSIZ - 1);
  if (device && ::ioctl(device.get(), TUNSETIFF, &request) != 0) device.reset();
  return device;
}

}  // namespace

BadWire::BadWire(const Hosts& hosts, const Faults& faults)
    : faults_(faults), stop_(::eventfd(0, EFD_CLOEXEC)) {
  ok_ = static_cast<bool>(stop_);
  for (std::size_t host = 0; ok_ && host < devices_.size(); ++host) {
    hosts.within(host, [&] { devices_[host] = make_device(); });
    const std::string& name = hosts.name(host);
    ok_ = devices_[host] &&
          Hosts::ip({"-n", name, "addr", "add", address(host) + "/24", "dev", kDevice}) &&
          Hosts::ip({"-n", name, "link", "set", kDevice, "up"});
  }
  if (ok_) thread_ = std::thread([this] { carry(); });
}

BadWire::~BadWire() {
  if (!thread_.joinable()) return;
  ::eventfd_write(stop_.get(), 1);
  thread_.join();
}

void BadWire::carry() {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> share(0, 1);
  std::priority_queue<Packet, std::vector<Packet>, std::greater<>> under_way;
  std::uint64_t number = 0;
  std::array<std::byte, 65536> bytes;
  const auto take_all_from = [&](std::size_t host) {
    ssize_t got = 0;
    while ((got = ::read(devices_[host].get(), bytes.data(), bytes.size())) > 0) {
      if (is_silent_ || share(random) < faults_.loss) continue;
      const auto extra =
          std::chrono::duration_cast<Clock::duration>(share(random) * faults_.jitter);
      under_way.push({Clock::now() + faults_.delay + extra,
                      ++number,
                      devices_[1 - host].get(),
                      {bytes.begin(), bytes.begin() + got}});
    }
  };
  for (;;) {
    std::array<pollfd, 3> entries{
        {{devices_[0].get(), POLLIN, 0}, {devices_[1].get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}}};
    constexpr int kForever = -1;
    const int limit =
        under_way.empty() ? kForever : Deadline::at(under_way.top().arrives).left_ms();
    (void)::poll(entries.data(), entries.size(), limit);
    if (entries[2].revents != 0) return;
    for (std::size_t host = 0; host < devices_.size(); ++host) take_all_from(host);
    while (!under_way.empty() && under_way.top().arrives <= Clock::now()) {
      const Packet& packet = under_way.top();
      // If the device's queue is full, the packet is lost.
      (void)!::write(packet.device, packet.bytes.data(), packet.bytes.size());
      under_way.pop();
    }
  }
}

}  // namespace xylem::test
