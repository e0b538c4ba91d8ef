// SPDX-License-Identifier: Apache-2.0
//
// Copies the process's environment into a value. Nothing else in Xylem reads the environment.
#include "config.h"

#include <unistd.h>

#include <string_view>

namespace xylem::runtime {

Environment process_environment() {
  Environment environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const auto equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    // The first of two entries of one name wins, as with getenv().
    environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

}  // namespace xylem::runtime
