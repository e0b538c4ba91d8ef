// SPDX-License-Identifier: Apache-2.0
//
// Keeps the values in a map.
#include "bootstrap/local_store.h"

#include "bootstrap/store_rules.h"

#include <fmt/format.h>

namespace xylem::runtime {

Status LocalStore::set(std::string_view key, std::span<const std::byte> value) {
  XYLEM_TRY(check_entry(key, value.size()));
  if (!values_.emplace(key, std::vector(value.begin(), value.end())).second) return set_twice(key);
  return {};
}

Result<std::vector<std::byte>> LocalStore::get(std::string_view key, Deadline /*deadline*/) {
  const auto found = values_.find(key);
  if (found != values_.end()) return found->second;
  return failure(Code::timed_out,
                 fmt::format("key \"{}\" is not set, and no other rank is there to set it", key));
}

}  // namespace xylem::runtime
