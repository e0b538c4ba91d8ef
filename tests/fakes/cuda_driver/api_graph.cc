// SPDX-License-Identifier: Apache-2.0
//
// Capture of streams, and graphs.
#include "fakes/cuda_driver/call.h"

#include <algorithm>

namespace xylem::fake_cuda {
namespace {

std::shared_ptr<Graph> graph_of(Call& call, CUgraph handle) {
  std::shared_ptr<Graph> graph = call.driver().graphs.find(handle);
  if (graph == nullptr) {
    call.misuse(CUDA_ERROR_INVALID_VALUE, "this is no graph, or it was destroyed");
  }
  return graph;
}

std::shared_ptr<GraphExec> exec_of(Call& call, CUgraphExec handle) {
  std::shared_ptr<GraphExec> exec = call.driver().graph_execs.find(handle);
  if (exec == nullptr) {
    call.misuse(CUDA_ERROR_INVALID_VALUE, "this is no executable graph, or it was destroyed");
  }
  return exec;
}

/// Returns the capture status of a stream. For the NULL stream, the call fails while a blocking
/// stream captures. This does not invalidate the capture.
CUresult status_of(Call& call, const Stream& stream, CUstreamCaptureStatus* status) {
  if (&stream == stream.context->legacy.get() &&
      capture_of_blocking_stream(call.driver(), *stream.context) != nullptr) {
    return call.fail(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  }
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (stream.capture != nullptr) {
    *status = stream.capture->is_invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                         : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  }
  return CUDA_SUCCESS;
}

struct CaptureInfo {
  CUstreamCaptureStatus* status = nullptr;
  cuuint64_t* id = nullptr;
  CUgraph* graph = nullptr;
  const CUgraphNode** after = nullptr;
  size_t* count = nullptr;
};

CUresult describe(Call& call, CUstream handle, const CaptureInfo& info) {
  if (call.has_failed() || !call.has(info.status)) return call.result();
  const StreamPtr stream = call.any_stream(handle);
  if (stream == nullptr || status_of(call, *stream, info.status) != CUDA_SUCCESS) {
    return call.result();
  }
  if (*info.status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
  stream->newest_handles.clear();
  for (const NodePtr& node : stream->newest) stream->newest_handles.push_back(node->handle);
  if (info.id != nullptr) *info.id = stream->capture->id;
  if (info.graph != nullptr) *info.graph = stream->capture->graph->handle;
  if (info.after != nullptr) *info.after = stream->newest_handles.data();
  if (info.count != nullptr) *info.count = stream->newest_handles.size();
  return CUDA_SUCCESS;
}

bool is_mode(CUstreamCaptureMode mode) {
  return mode == CU_STREAM_CAPTURE_MODE_GLOBAL || mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL ||
         mode == CU_STREAM_CAPTURE_MODE_RELAXED;
}

}  // namespace
}  // namespace xylem::fake_cuda

using namespace xylem::fake_cuda;  // NOLINT(google-build-using-namespace)

extern "C" {
// NVIDIA defines these names.
// NOLINTBEGIN(readability-identifier-naming)

CUresult cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode) {
  Call call(__func__, Needs::context);
  if (call.has_failed()) return call.result();
  const StreamPtr stream = call.any_stream(handle);
  if (stream == nullptr) return call.result();
  if (!is_mode(mode)) return call.misuse(CUDA_ERROR_INVALID_VALUE, "a mode that does not exist");
  if (stream == stream->context->legacy) {
    return call.misuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the NULL stream cannot capture");
  }
  if (stream->capture != nullptr) {
    return call.misuse(CUDA_ERROR_ILLEGAL_STATE, "the stream captures already");
  }
  Driver& driver = call.driver();
  const auto capture = std::make_shared<Capture>();
  capture->id = ++driver.captures_made;
  capture->mode = mode;
  capture->thread = thread_number();
  capture->graph = std::make_shared<Graph>();
  capture->graph->handle = driver.graphs.add(capture->graph);
  driver.captures.push_back(capture);
  join_capture(stream, capture, {});
  return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  Call call(__func__, Needs::context);
  if (call.has_failed() || !call.has(graph)) return call.result();
  *graph = nullptr;
  const StreamPtr stream = call.any_stream(handle);
  if (stream == nullptr) return call.result();
  const CapturePtr capture = stream->capture;
  if (capture == nullptr)
    return call.misuse(CUDA_ERROR_ILLEGAL_STATE, "the stream captures nothing");
  if (capture->streams.front() != stream) {
    capture->is_invalid = true;
    return call.misuse(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "another stream began the capture");
  }
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != thread_number()) {
    return call.misuse(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "another thread began the capture");
  }
  const bool is_whole = is_joined(*capture);
  if (capture->is_invalid || !is_whole) {
    drop_capture(call.driver(), capture);
  } else {
    end_capture(call.driver(), capture);
  }
  // A call that invalidated the capture has already been counted as a misuse.
  if (capture->is_invalid) return call.fail(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  if (!is_whole) {
    return call.misuse(CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
                       "a stream that joined was not waited for");
  }
  *graph = capture->graph->handle;
  return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  Call call(__func__, Needs::context);
  return describe(call, handle, {status});
}

// The newest signature, which returns data of edges. This driver has no such data, so it sets NULL.
CUresult cuStreamGetCaptureInfo(CUstream handle,
                                CUstreamCaptureStatus* status,
                                cuuint64_t* id,
                                CUgraph* graph,
                                const CUgraphNode** after,
                                const CUgraphEdgeData** edges,
                                size_t* count) {
  Call call(__func__, Needs::context);
  if (edges != nullptr) *edges = nullptr;
  return describe(call, handle, {status, id, graph, after, count});
}

// The signature in CUDA 11.3 to 12.2.
CUresult cuStreamGetCaptureInfo_v2(CUstream handle,
                                   CUstreamCaptureStatus* status,
                                   cuuint64_t* id,
                                   CUgraph* graph,
                                   const CUgraphNode** after,
                                   size_t* count) {
  Call call(__func__, Needs::context);
  return describe(call, handle, {status, id, graph, after, count});
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  Call call(__func__, Needs::start);
  if (call.has_failed() || !call.has(mode)) return call.result();
  if (!is_mode(*mode)) return call.misuse(CUDA_ERROR_INVALID_VALUE, "a mode that does not exist");
  std::swap(*mode, capture_mode_of_thread());
  return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode* nodes, size_t* count) {
  Call call(__func__, Needs::start);
  if (call.has_failed() || !call.has(count)) return call.result();
  const auto graph = graph_of(call, handle);
  if (graph == nullptr) return call.result();
  if (nodes == nullptr) {
    *count = graph->nodes.size();
    return CUDA_SUCCESS;
  }
  for (size_t i = 0; i < *count; ++i) {
    nodes[i] = i < graph->nodes.size() ? graph->nodes[i]->handle : nullptr;
  }
  *count = std::min(*count, graph->nodes.size());
  return CUDA_SUCCESS;
}

// The flags are checked, but have no effect. Launches from a device are not supported.
CUresult cuGraphInstantiate(CUgraphExec* handle, CUgraph of, unsigned long long flags) {
  Call call(__func__, Needs::context);
  if (call.has_failed() || !call.has(handle)) return call.result();
  constexpr unsigned long long kKnown = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                                        CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
                                        CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
  if ((flags & ~kKnown) != 0) return call.fail(CUDA_ERROR_NOT_SUPPORTED);
  const auto graph = graph_of(call, of);
  if (graph == nullptr) return call.result();
  const auto exec = std::make_shared<GraphExec>();
  exec->graph = graph;
  *handle = call.driver().graph_execs.add(exec);
  return CUDA_SUCCESS;
}

CUresult cuGraphUpload(CUgraphExec handle, CUstream stream_handle) {
  Call call(__func__, Needs::context);
  if (call.has_failed() || exec_of(call, handle) == nullptr) return call.result();
  call.stream(stream_handle);
  return call.result();
}

CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
  Call call(__func__, Needs::context);
  if (call.has_failed()) return call.result();
  const auto exec = exec_of(call, handle);
  if (exec == nullptr) return call.result();
  const StreamPtr stream = call.stream(stream_handle);
  if (stream == nullptr) return call.result();
  if (stream->capture != nullptr) {
    add_child(*stream, *exec->graph);
  } else {
    launch_graph(call.driver(), *exec, *stream);
  }
  return CUDA_SUCCESS;
}

// Launches that are under way continue.
CUresult cuGraphExecDestroy(CUgraphExec handle) {
  Call call(__func__, Needs::start);
  if (call.has_failed() || exec_of(call, handle) == nullptr) return call.result();
  call.driver().graph_execs.remove(handle);
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph handle) {
  Call call(__func__, Needs::start);
  if (call.has_failed() || graph_of(call, handle) == nullptr) return call.result();
  const auto& captures = call.driver().captures;
  if (std::any_of(captures.begin(), captures.end(),
                  [&](const CapturePtr& capture) { return capture->graph->handle == handle; })) {
    return call.misuse(CUDA_ERROR_INVALID_VALUE, "the graph is being captured");
  }
  call.driver().graphs.remove(handle);
  return CUDA_SUCCESS;
}

// NOLINTEND(readability-identifier-naming)
}  // extern "C"
