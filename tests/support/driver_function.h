// SPDX-License-Identifier: Apache-2.0
//
// Functions of the CUDA driver that only tests use.
#pragma once

#include "xylem/base/check.h"

#include <cuda.h>

#include <dlfcn.h>

#include <cstdlib>

/// Calls a function of the driver, by the name that cuda.h defines, such as
/// XYLEM_DRIVER(cuGraphLaunch)(graph, stream). Ends the process if the driver lacks the function.
#define XYLEM_DRIVER(name) (driver_function<decltype(&(name))>(XYLEM_TEXT(name)))
#define XYLEM_TEXT(name) #name

namespace xylem::test {

template <typename Function>
Function driver_function(const char* name) {
  const char* const driver = std::getenv("CUDA_DRIVER");
  static void* const kLibrary = ::dlopen(driver == nullptr ? "libcuda.so.1" : driver, RTLD_NOW);
  XYLEM_CHECK(kLibrary != nullptr, ::dlerror());
  void* const found = ::dlsym(kLibrary, name);
  XYLEM_CHECK(found != nullptr, name);
  return reinterpret_cast<Function>(found);
}

/// Ends the process if a function of the driver has failed.
inline void must(CUresult result) { XYLEM_CHECK(result == CUDA_SUCCESS, static_cast<int>(result)); }

}  // namespace xylem::test
