// SPDX-License-Identifier: Apache-2.0
#include "support/cuda_graph.h"

#include "support/driver_function.h"

namespace xylem::test {

using execution::cuda::CurrentContext;

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
