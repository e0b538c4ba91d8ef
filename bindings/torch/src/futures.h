// SPDX-License-Identifier: Apache-2.0
//
// Works and futures as Python sees them: those of torch, except that each callback runs with the
// origin of its call (Origin), which distinguishes its own collectives from those of the program
// and of other callbacks. Where a callback runs depends on timing: within then() if the future is
// complete, within the wait() of a work, or on another thread.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace xylem::pytorch {

/// Adds the types to the module, under names that torch's functions then return.
void define_futures(pybind11::module_& module);

}  // namespace xylem::pytorch
