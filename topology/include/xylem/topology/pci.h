// SPDX-License-Identifier: Apache-2.0
//
// Address and identity of a PCI function. The address is the only name of a device on which all
// tools and drivers agree, so devices are matched by address alone.
#pragma once

#include "xylem/base/status.h"

#include <algorithm>
#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace xylem::topology {

/// domain:bus:device.function. Devices are numbered in the order of their addresses (GPU0, GPU1,
/// …).
struct PciAddress {
  std::uint32_t domain = 0;  ///< Needs more than 16 bits behind Intel's VMD.
  std::uint8_t bus = 0;
  std::uint8_t device = 0;    ///< 0 to 31.
  std::uint8_t function = 0;  ///< 0 to 7.

  /// Reads "0000:3b:00.0" or, for domain 0, "3b:00.0". Digits are hexadecimal.
  static Result<PciAddress> parse(std::string_view text);
  /// "0000:3b:00.0".
  std::string to_string() const;

  friend auto operator<=>(const PciAddress&, const PciAddress&) = default;
};

/// Vendor and model numbers, as in the PCI ID database.
struct PciId {
  std::uint16_t vendor = 0;
  std::uint16_t device = 0;
  std::uint16_t subsystem_vendor = 0;
  std::uint16_t subsystem_device = 0;

  friend bool operator==(const PciId&, const PciId&) = default;
};

/// Vendors whose devices are treated specially.
inline constexpr std::uint16_t kVendorNvidia = 0x10de;
inline constexpr std::uint16_t kVendorAmd = 0x1002;
inline constexpr std::uint16_t kVendorCray = 0x17db;

/// The upper byte of a class: the general kind of device.
inline constexpr std::uint8_t kClassNetwork = 0x02;
inline constexpr std::uint8_t kClassDisplay = 0x03;
inline constexpr std::uint8_t kClassAccelerator = 0x12;

/// PCI's codes of class and subclass (PCI Code and ID Assignment Specification, section 1).
inline constexpr std::uint16_t kInfinibandController = 0x0207;
inline constexpr std::uint16_t k3dController = 0x0302;
inline constexpr std::uint16_t kHostBridge = 0x0600;
inline constexpr std::uint16_t kPciBridge = 0x0604;

/// VGA chips of management controllers by ATI (AMD) (Rage XL, RV100, ES1000). Chips by other makers
/// (ASPEED, Matrox) need no list, since only NVIDIA and AMD devices count as GPUs.
inline constexpr std::array<std::uint16_t, 3> kManagementVga{0x4752, 0x5159, 0x515e};

/// A GPU is a display controller or accelerator by NVIDIA or AMD. This excludes FPGAs and the VGA
/// chips of management controllers, which have the same classes.
constexpr bool is_gpu(const PciId& id, std::uint16_t pci_class) noexcept {
  const auto base = static_cast<std::uint8_t>(pci_class >> 8);
  if (base != kClassDisplay && base != kClassAccelerator) return false;
  if (id.vendor == kVendorNvidia) return true;
  if (id.vendor != kVendorAmd) return false;
  return std::ranges::find(kManagementVga, id.device) == kManagementVga.end();
}

}  // namespace xylem::topology
