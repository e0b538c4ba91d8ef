// SPDX-License-Identifier: Apache-2.0
//
// Packing and checking of addresses. Both ends have the same byte order: jobs do not mix
// architectures.
#include "ucx/address.h"

#include "ucx/reach.h"
#include "xylem/base/hash.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <string_view>

namespace xylem::transport::ucx {
namespace {

constexpr std::uint32_t kMagic = 0x58554358;  // "XUCX"
constexpr std::uint16_t kVersion = 1;
constexpr std::uint16_t kReaches = 2;

struct Header {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t reach;
  std::uint64_t checksum;
};
static_assert(sizeof(Header) == 16);

std::uint64_t checksum(std::uint16_t reach, std::span<const std::byte> worker_address) {
  const std::string_view text(reinterpret_cast<const char*>(worker_address.data()),
                              worker_address.size());
  return hash_text(text, reach);
}

}  // namespace

std::vector<std::byte> wrap_address(UcxReach reach, std::span<const std::byte> worker_address) {
  const auto reach_number = static_cast<std::uint16_t>(reach);
  const Header header{kMagic, kVersion, reach_number, checksum(reach_number, worker_address)};
  std::vector<std::byte> address(sizeof header + worker_address.size());
  std::memcpy(address.data(), &header, sizeof header);
  std::memcpy(address.data() + sizeof header, worker_address.data(), worker_address.size());
  return address;
}

Result<std::span<const std::byte>> unwrap_address(UcxReach reach,
                                                  std::span<const std::byte> address) {
  Header header{};
  if (address.size() <= sizeof header) {
    return failure(
        Code::invalid_argument,
        fmt::format("UCX address of {} bytes is too short: pass all of address()", address.size()));
  }
  std::memcpy(&header, address.data(), sizeof header);
  const auto worker_address = address.subspan(sizeof header);
  if (header.magic != kMagic || header.version != kVersion || header.reach >= kReaches ||
      header.checksum != checksum(header.reach, worker_address)) {
    return failure(
        Code::invalid_argument,
        fmt::format("UCX address of {} bytes is damaged, or of another version of Xylem: "
                    "pass what address() of the peer returned",
                    address.size()));
  }
  if (header.reach != static_cast<std::uint16_t>(reach)) {
    return failure(
        Code::invalid_argument,
        fmt::format("UCX address is one of reach {}, but this transport's is {}: connect "
                    "transports of the same reach",
                    name(static_cast<UcxReach>(header.reach)), name(reach)));
  }
  return worker_address;
}

}  // namespace xylem::transport::ucx
