// SPDX-License-Identifier: Apache-2.0
//
// WithoutPython: releases Python's lock during its lifetime, if this thread holds it.
#pragma once

#include <Python.h>

namespace xylem::pytorch {

class WithoutPython {
 public:
  WithoutPython() noexcept
      : state_(Py_IsInitialized() != 0 && PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr) {
  }
  WithoutPython(const WithoutPython&) = delete;
  WithoutPython& operator=(const WithoutPython&) = delete;
  ~WithoutPython() {
    if (state_) PyEval_RestoreThread(state_);
  }

 private:
  PyThreadState* state_;
};

}  // namespace xylem::pytorch
