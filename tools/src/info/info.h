// SPDX-License-Identifier: Apache-2.0
//
// The verb `info`: shows Xylem's settings on this host and where they come from.
#pragma once

#include "xylem/runtime/info.h"

#include <string>

namespace xylem::tools {

/// The text, made from the facts.
std::string info_text(const Info& facts);

/// Prints the text for this host. Returns the exit status.
int info();

}  // namespace xylem::tools
