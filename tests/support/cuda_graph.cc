// SPDX-License-Identifier: Apache-2.0
#include "support/cuda_graph.h"

#include <dlfcn.h>

#include <cstdlib>

namespace xylem::test {
namespace {

using execution::cuda::CurrentContext;

/// Finds a function of the driver that only tests use, by the name that cuda.h defines.
#define XYLEM_DRIVER(name) (find<decltype(&(name))>(XYLEM_TEXT(name)))
#define XYLEM_TEXT(name) #name

template <typename Function>
Function find(const char* name) {
  const char* const driver = std::getenv("CUDA_DRIVER");
  static void* const library = ::dlopen(driver == nullptr ? "libcuda.so.1" : driver, RTLD_NOW);
  XYLEM_CHECK(library != nullptr, ::dlerror());
  void* const found = ::dlsym(library, name);
  XYLEM_CHECK(found != nullptr, name);
  return reinterpret_cast<Function>(found);
}

void must(CUresult result) { XYLEM_CHECK(result == CUDA_SUCCESS, static_cast<int>(result)); }

}  // namespace

CudaGraph::CudaGraph(const execution::cuda::Driver& driver,
                     const CudaMemory& memory,
                     const std::function<void()>& enqueue,
                     CUstreamCaptureMode mode)
    : driver_(driver), memory_(memory) {
  const CurrentContext current(driver_, memory_.context());
  CUgraph captured = nullptr;
  must(XYLEM_DRIVER(cuStreamBeginCapture)(memory_.stream(), mode));
  enqueue();
  must(XYLEM_DRIVER(cuStreamEndCapture)(memory_.stream(), &captured));
  must(XYLEM_DRIVER(cuGraphInstantiateWithFlags)(&graph_, captured, 0));
  must(XYLEM_DRIVER(cuGraphDestroy)(captured));
}

CudaGraph::~CudaGraph() { must(XYLEM_DRIVER(cuGraphExecDestroy)(graph_)); }

void CudaGraph::launch() const {
  const CurrentContext current(driver_, memory_.context());
  must(XYLEM_DRIVER(cuGraphLaunch)(graph_, memory_.stream()));
}

}  // namespace xylem::test
