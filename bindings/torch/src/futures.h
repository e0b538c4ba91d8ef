// SPDX-License-Identifier: Apache-2.0
//
// The Python types of Xylem's works and futures. They extend torch's types: while a callback of a
// future runs, its thread stores which call the future belongs to (Origin). So the collectives that
// a callback calls are distinguished from those of the program and of other callbacks
// (CallSequences::collectives()). The thread alone does not identify the callback: depending on
// timing, a callback runs within then(), within the wait() of a work, or on a thread of Pending.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace xylem::pytorch {

/// Adds the types and the function collected() to the module. From then on, functions of torch
/// return these types for Xylem's works and futures.
void define_futures(pybind11::module_& module);

}  // namespace xylem::pytorch
