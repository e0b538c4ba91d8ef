// SPDX-License-Identifier: Apache-2.0
//
// WorkAccess: makes Works, the user's handles to operations.
#pragma once

#include "calls/operation.h"
#include "xylem/base/status.h"
#include "xylem/runtime/work.h"

#include <cstdint>
#include <memory>
#include <utility>

namespace xylem::runtime {

struct WorkAccess {
  /// The first handle to an operation. Takes ownership of a reference that the caller holds.
  static Work of(Operation& operation) noexcept { return Work(operation); }
  /// The Work of a call that ended before it returned.
  static Work ended(std::uint32_t source, std::uint64_t count = 0) noexcept {
    return Work(source, count);
  }
  /// The Work of a call that failed with this error before an operation was started for it.
  static Work refused(Status why) {
    auto operation = std::make_unique<Operation>();
    operation->end(std::move(why));
    return Work(*operation.release());
  }
  /// True if the call ended before it returned.
  static bool has_no_operation(const Work& work) noexcept { return work.operation_ == nullptr; }
};

}  // namespace xylem::runtime
