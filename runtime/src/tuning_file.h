// SPDX-License-Identifier: Apache-2.0
//
// The tuning file: measured constants of the cost model, kept between jobs under the fingerprint of
// the hardware.
#pragma once

#include "xylem/base/status.h"
#include "xylem/collectives/estimate.h"

#include <optional>
#include <string>

namespace xylem::runtime {

/// `model` with the file's constants; nothing if there is no file, or it holds no entry for this
/// hardware. A file that cannot be read as tuning data is `invalid_argument`: it is not ours to
/// overwrite.
Result<std::optional<collectives::CostModel>> load_tuning(const std::string& path,
                                                          const collectives::CostModel& model);
/// Adds or replaces this hardware's entry; written whole, then renamed into place.
Status save_tuning(const std::string& path, const collectives::CostModel& model);

}  // namespace xylem::runtime
