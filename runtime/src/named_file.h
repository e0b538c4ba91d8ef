// SPDX-License-Identifier: Apache-2.0
//
// The one reader for files that a setting names (XYLEM_SCHEDULES, XYLEM_TUNING).
#pragma once

#include "xylem/base/clock.h"
#include "xylem/base/quantity.h"
#include "xylem/base/status.h"

#include <optional>
#include <string>
#include <string_view>

namespace xylem::runtime {

/// The content of the regular file `path`, which `setting` names; nothing if there is no such file.
/// Error messages begin with "SETTING=path: ". Fails with invalid_argument if the file is of
/// another kind (a FIFO or a device may have no end), has more than `most` bytes, or cannot be
/// read; and with timed_out if the file system does not answer by the deadline.
Result<std::optional<std::string>> read_named_file(std::string_view setting,
                                                   const std::string& path,
                                                   Bytes most,
                                                   Deadline deadline);

}  // namespace xylem::runtime
