// SPDX-License-Identifier: Apache-2.0
//
// CudaGraph: a captured CUDA graph.
#pragma once

#include "cuda/driver.h"
#include "support/cuda_memory.h"
#include "xylem/base/check.h"

#include <cuda.h>

#include <functional>

namespace xylem::test {

/// What is enqueued on the stream of `memory` while the object is made, as a graph. Ends the
/// process if a function of the driver fails.
class CudaGraph {
 public:
  CudaGraph(const execution::cuda::Driver& driver,
            const CudaMemory& memory,
            const std::function<void()>& enqueue,
            CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  ~CudaGraph();

  /// Launches the graph on the stream of `memory`.
  void launch() const;

 private:
  const execution::cuda::Driver& driver_;
  const CudaMemory& memory_;
  CUgraphExec graph_ = nullptr;
};

}  // namespace xylem::test
