// SPDX-License-Identifier: Apache-2.0
//
// The state of the Python interpreter, and its lock (the GIL).
#pragma once

#include <Python.h>

namespace xylem::pytorch {

/// Whether the interpreter is being finalized, or has been finalized, because the program has
/// ended.
inline bool python_is_ending() noexcept {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsInitialized() == 0 || Py_IsFinalizing() != 0;
#else
  return Py_IsInitialized() == 0 || _Py_IsFinalizing() != 0;
#endif
}

/// Releases Python's lock during its lifetime, if this thread holds it.
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
