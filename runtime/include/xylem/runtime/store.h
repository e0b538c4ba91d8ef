// SPDX-License-Identifier: Apache-2.0
//
// Store: a key-value store through which ranks find each other at start. Pass your own store to
// Runtime::create() (torch's, etcd, …), or let Xylem serve a store over TCP or in a shared
// directory.
#pragma once

#include "xylem/base/api.h"
#include "xylem/base/clock.h"
#include "xylem/base/status.h"

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace xylem {

/// Keys are short ASCII text, values at most 64 KiB. Each key is set once. Calls come from one
/// thread at a time.
class XYLEM_API Store {
 public:
  virtual ~Store() = default;
  virtual Status set(std::string_view key, std::span<const std::byte> value) = 0;
  /// Blocks until the key is set, and returns its value. Fails with `timed_out`, naming the key, at
  /// the deadline.
  virtual Result<std::vector<std::byte>> get(std::string_view key, Deadline deadline) = 0;
};

}  // namespace xylem
