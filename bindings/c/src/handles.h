// SPDX-License-Identifier: Apache-2.0
//
// The contents of the opaque handles of the C API.
#pragma once

#include "xylem/runtime/communicator.h"
#include "xylem/runtime/runtime.h"
#include "xylem/runtime/work.h"
#include "xylem/xylem_c.h"

#include <string>
#include <vector>

// NOLINTBEGIN(readability-identifier-naming): names of the C API
struct xylem_work {
  xylem::Work work;
};

struct xylem_communicator {
  xylem::Communicator communicator;
  bool of_runtime = false;    ///< True for the world, which is freed with its runtime.
  bool is_on_stream = false;  ///< From xylem_communicator_on_stream().
};

struct xylem_runtime {
  xylem::Runtime runtime;
  xylem_communicator world;
  std::vector<std::string> hosts;
  std::string launcher;
};
// NOLINTEND(readability-identifier-naming)
