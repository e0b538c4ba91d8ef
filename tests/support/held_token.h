// SPDX-License-Identifier: Apache-2.0
//
// HeldToken: the progress token of a job that has no sources of work. It serves tests of classes
// whose functions take a Token.
#pragma once

#include "runtime/src/progress/progress.h"
#include "runtime/src/progress/work_source.h"

namespace xylem::runtime {

class HeldToken {
 public:
  HeldToken() { progress_.acquire(); }
  operator Token() const noexcept { return progress_.assert_held(); }

 private:
  WorkSources sources_;
  Progress progress_{sources_};
};

}  // namespace xylem::runtime
