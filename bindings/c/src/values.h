// SPDX-License-Identifier: Apache-2.0
//
// Converts numbers of the C API into enumerators of the C++ API. The values are the same. Numbers
// outside of an enumeration are refused here, since an enumerator must not hold them.
#pragma once

#include "xylem/base/status.h"
#include "xylem/runtime/types.h"
#include "xylem/xylem_c.h"

namespace xylem::c {

Result<DataType> to_data_type(xylem_data_type type);
Result<RedOp> to_redop(xylem_redop op);

}  // namespace xylem::c
