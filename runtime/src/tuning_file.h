// SPDX-License-Identifier: Apache-2.0
//
// The tuning file: what was measured of a machine, kept between jobs under the fingerprint of its
// hardware.
#pragma once

#include "xylem/base/status.h"
#include "xylem/collectives/estimate.h"
#include "xylem/transport/transport.h"

#include <cstdint>
#include <optional>
#include <string>

namespace xylem::runtime {

/// What is measured.
struct Tuning {
  collectives::CostModel model;
  /// Messages of so many bytes and more are better fetched from their sender's process, on one
  /// host; kAnySize: none are. Not set where it was not measured.
  std::optional<std::uint64_t> pull_from;
};

/// `tuning` with the file's values; nothing if there is no file, or it holds no entry for this
/// hardware. A file that cannot be read as tuning data is `invalid_argument`: it is not ours to
/// overwrite.
Result<std::optional<Tuning>> load_tuning(const std::string& path, const Tuning& tuning);
/// Adds or replaces this hardware's entry; written whole, then renamed into place.
Status save_tuning(const std::string& path, const Tuning& tuning);

}  // namespace xylem::runtime
