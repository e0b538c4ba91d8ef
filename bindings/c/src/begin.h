// SPDX-License-Identifier: Apache-2.0
//
// What all operations of the C face have in common: a communicator, an element type, and a Work
// that is handed out or waited for.
#pragma once

#include "failure.h"
#include "handles.h"
#include "values.h"

#include <memory>
#include <utility>

namespace xylem::c {

/// Starts an operation by `start(const Communicator&)`, which gives a Result<Work>.
template <typename Start>
xylem_status begin(const xylem_communicator* communicator,
                   xylem_work** work,
                   Start&& start) noexcept {
  return guarded([&]() -> Status {
    if (work != nullptr) *work = nullptr;
    if (communicator == nullptr) return null_argument("communicator");
    // Memory first: once it has begun, an operation must have a handle.
    auto handle = work == nullptr ? nullptr : std::make_unique<xylem_work>();
    XYLEM_TRY(Work begun, start(communicator->communicator));
    if (work == nullptr) return begun.wait();
    if (begun.test()) {
      XYLEM_TRY(begun.status());
    }
    handle->work = std::move(begun);
    *work = handle.release();
    return {};
  });
}

/// An operation that moves: `start(const Communicator&, DataType)` gives a Result<Work>.
template <typename Start>
xylem_status begin_move(const xylem_communicator* communicator,
                        xylem_data_type type,
                        xylem_work** work,
                        Start&& start) noexcept {
  return begin(communicator, work, [&](const Communicator& on) -> Result<Work> {
    XYLEM_TRY(const DataType element, to_data_type(type));
    return start(on, element);
  });
}

}  // namespace xylem::c
