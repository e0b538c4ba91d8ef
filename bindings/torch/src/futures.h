// SPDX-License-Identifier: Apache-2.0
//
// Works and futures as Python sees them. They are those of torch, except that their callbacks know
// to which call they belong, by which their own collectives are told from those of the program and
// of other callbacks (Backend::group_here()). It depends on chance where a callback runs: within
// then() if the future is complete, within the wait() of a work, or on another thread.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace xylem::pytorch {

/// Adds the types to the module, under names that torch's functions then return.
void define_futures(pybind11::module_& module);

}  // namespace xylem::pytorch
