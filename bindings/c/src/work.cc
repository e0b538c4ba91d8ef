// SPDX-License-Identifier: Apache-2.0
//
// Work in the C API.
#include "xylem/runtime/work.h"

#include "failure.h"
#include "handles.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>

using xylem::Status;
using xylem::c::guarded;
using xylem::c::null_argument;

namespace {

std::chrono::nanoseconds duration(std::uint64_t nanoseconds) noexcept {
  constexpr std::uint64_t kLongest = std::numeric_limits<std::int64_t>::max();
  return std::chrono::nanoseconds(static_cast<std::int64_t>(std::min(nanoseconds, kLongest)));
}

}  // namespace

bool xylem_work_test(const xylem_work* work) { return work == nullptr || work->work.test(); }

xylem_status xylem_work_wait(const xylem_work* work) {
  return guarded(
      [&]() -> Status { return work == nullptr ? null_argument("work") : work->work.wait(); });
}

xylem_status xylem_work_wait_for(const xylem_work* work, uint64_t limit_ns) {
  return guarded([&]() -> Status {
    if (work == nullptr) return null_argument("work");
    return work->work.wait_for(duration(limit_ns));
  });
}

void xylem_work_set_timeout(const xylem_work* work, uint64_t limit_ns) {
  if (work != nullptr) work->work.set_timeout(duration(limit_ns));
}

xylem_status xylem_work_status(const xylem_work* work) {
  return guarded(
      [&]() -> Status { return work == nullptr ? null_argument("work") : work->work.status(); });
}

uint32_t xylem_work_source(const xylem_work* work) {
  return work == nullptr ? XYLEM_NO_RANK : work->work.source();
}

uint64_t xylem_work_count(const xylem_work* work) {
  return work == nullptr ? 0 : work->work.count();
}

void xylem_work_release(xylem_work* work) {
  (void)guarded([&]() -> Status {
    const std::unique_ptr<xylem_work> owned(work);
    return {};
  });
}
