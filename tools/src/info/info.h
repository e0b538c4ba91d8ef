// SPDX-License-Identifier: Apache-2.0
//
// The verb `info`: shows what Xylem would do here and why.
#pragma once

#include "xylem/runtime/info.h"

#include <string>

namespace xylem::tools {

/// The page, from the facts.
std::string info_text(const Info& facts);

/// Prints the page of this host. Returns the exit status.
int info();

}  // namespace xylem::tools
