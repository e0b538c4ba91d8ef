// SPDX-License-Identifier: Apache-2.0
//
// Reading of sysfs: one value per file, relations as links. Whatever is missing or unreadable is
// nothing.
#pragma once

#include "xylem/topology/pci.h"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace xylem::topology::sysfs {

using Directory = std::filesystem::path;

/// The first line of `file`, cleaned; nothing if it cannot be read (sysfs files fail for what a
/// device lacks).
std::optional<std::string> value(const std::filesystem::path& file);

/// The names of the directories in `directory`, links to directories counted, in order.
std::vector<std::string> subdirectories(const Directory& directory);

bool has_directory(const std::filesystem::path& path);

/// The last component of what the link `path` leads to.
std::optional<std::string> link_target(const std::filesystem::path& path);

/// The PCI function that `path` leads into, links resolved: the innermost, since a virtio device
/// lies in one and a function below its bridges.
std::optional<PciAddress> pci_function(const std::filesystem::path& path);

}  // namespace xylem::topology::sysfs
