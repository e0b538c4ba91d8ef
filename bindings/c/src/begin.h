// SPDX-License-Identifier: Apache-2.0
//
// The common part of all operations in the C API: the communicator and the element type are
// checked; then the function waits for the Work or, if the caller wants the handle, returns it.
#pragma once

#include "failure.h"
#include "handles.h"
#include "values.h"

#include <memory>
#include <utility>

namespace xylem::c {

/// Begins an operation by calling `start(const Communicator&)`, which returns a Result<Work>.
template <typename Start>
xylem_status begin(const xylem_communicator* communicator,
                   xylem_work** work,
                   Start&& start) noexcept {
  return guarded([&]() -> Status {
    if (work != nullptr) *work = nullptr;
    if (communicator == nullptr) return null_argument("communicator");
    // Allocate the handle before the operation begins: the operation could not be undone if the
    // allocation failed.
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

/// Like begin(), for operations that transfer elements: `start(const Communicator&, DataType)`
/// returns a Result<Work>.
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
