// SPDX-License-Identifier: Apache-2.0
//
// Works and futures as Python sees them. They are those of torch, except that then() knows which
// callbacks it runs: those of a future that is complete already run within then(), on the calling
// thread. It depends on chance whether a future is complete, so the calls that such a callback
// makes must be told from those of the program, as the calls are that callbacks make on other
// threads (Backend::group_here()).
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace xylem::pytorch {

/// Adds the types to the module, under names that torch's functions then return.
void define_futures(pybind11::module_& module);

}  // namespace xylem::pytorch
