// SPDX-License-Identifier: Apache-2.0
//
// The C face's numbers as the C++ API's enumerators. They have the same values; what is in no
// enumeration is refused here, since no enumerator may hold it.
#pragma once

#include "xylem/base/status.h"
#include "xylem/runtime/types.h"
#include "xylem/xylem_c.h"

namespace xylem::c {

Result<DataType> to_data_type(xylem_data_type type);
Result<RedOp> to_redop(xylem_redop op);

}  // namespace xylem::c
