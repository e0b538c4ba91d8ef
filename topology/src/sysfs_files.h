// SPDX-License-Identifier: Apache-2.0
//
// Reads sysfs, which has one value per file, and symbolic links for relations between devices.
// Missing or unreadable files give an empty result.
#pragma once

#include "xylem/topology/pci.h"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace xylem::topology::sysfs {

using Directory = std::filesystem::path;

/// The first line of `file`, cleaned; nothing if it cannot be read (reading fails for features that
/// a device lacks).
std::optional<std::string> value(const std::filesystem::path& file);

/// The names of the directories in `directory`, including links to directories, sorted.
std::vector<std::string> subdirectories(const Directory& directory);

bool has_directory(const std::filesystem::path& path);

/// The last component of the target of the symbolic link `path`.
std::optional<std::string> link_target(const std::filesystem::path& path);

/// The PCI function to which `path` belongs, after resolving links: the innermost one, since the
/// path contains the bridges above a function, and a virtio device is inside a function.
std::optional<PciAddress> pci_function(const std::filesystem::path& path);

}  // namespace xylem::topology::sysfs
