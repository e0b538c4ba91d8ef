// SPDX-License-Identifier: Apache-2.0
//
// LocalStore: the store of a job of one rank. Nobody else can set a key, so get() never waits.
#pragma once

#include "xylem/runtime/store.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace xylem::runtime {

class LocalStore final : public Store {
 public:
  Status set(std::string_view key, std::span<const std::byte> value) override;
  Result<std::vector<std::byte>> get(std::string_view key, Deadline deadline) override;

 private:
  std::map<std::string, std::vector<std::byte>, std::less<>> values_;
};

}  // namespace xylem::runtime
