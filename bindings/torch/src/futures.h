// SPDX-License-Identifier: Apache-2.0
//
// The Python types of works and futures. They are those of torch, except that their callbacks
// record the call to which they belong. So the collectives that a callback calls are distinguished
// from those of the program and of other callbacks (CallSequences::collectives()). It depends on
// chance where a callback runs: within then() if the future is complete, within the wait() of a
// work, or on another thread.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace xylem::pytorch {

/// Adds the types and the function collected() to the module. Functions of torch then return these
/// types.
void define_futures(pybind11::module_& module);

}  // namespace xylem::pytorch
