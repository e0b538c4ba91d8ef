// SPDX-License-Identifier: Apache-2.0
//
// Converts numbers of the C API into enumerators of the C++ API. The values are the same.
// Conversion fails for a number that is not one of the enumerators.
#pragma once

#include "xylem/base/status.h"
#include "xylem/runtime/types.h"
#include "xylem/xylem_c.h"

namespace xylem::c {

Result<DataType> to_data_type(xylem_data_type type);
Result<RedOp> to_redop(xylem_redop op);

}  // namespace xylem::c
