// SPDX-License-Identifier: Apache-2.0
//
// Graphs, and the stream capture that creates them. While a stream captures, enqueue() adds nodes
// to a graph, and runs nothing. Each node depends on the newest nodes of its stream. An event that
// is recorded in one stream and awaited in another makes the other stream's next node depend on
// these nodes, too.
#pragma once

#include "fakes/cuda_driver/queue.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace xylem::fake_cuda {

struct Context;
struct Device;
struct Driver;
struct Stream;

struct Node {
  CUgraphNode handle = nullptr;
  std::function<void(const Run&)> run;
  bool waits = false;  ///< Polls memory until another write.
  std::vector<std::shared_ptr<Node>> after;
  Device* device = nullptr;
  std::size_t branch = 0;  ///< The stream of the capture, by its position. Each has its own queue.
};
using NodePtr = std::shared_ptr<Node>;

struct Graph {
  CUgraph handle = nullptr;
  std::vector<NodePtr> nodes;  ///< In an order in which each follows its dependencies.
};

/// A graph that can be launched. Its launches run one after another.
struct GraphExec {
  std::shared_ptr<const Graph> graph;
  CommandPtr last;
};

/// A capture in progress: the stream that began it, and the streams that have joined.
struct Capture {
  unsigned long long id = 0;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::uint64_t thread = 0;  ///< The thread that began the capture.
  bool is_invalid = false;
  std::shared_ptr<Graph> graph;
  std::vector<std::shared_ptr<Stream>> streams;  ///< The first of these began the capture.
};
using CapturePtr = std::shared_ptr<Capture>;

/// Adds `stream` to a capture. The next node of the stream depends on `after`.
void join_capture(const std::shared_ptr<Stream>& stream,
                  const CapturePtr& capture,
                  const std::vector<NodePtr>& after);

/// Adds a node to the capture of a stream.
void add_node(Stream& stream, std::function<void(const Run&)> run, bool waits);
/// Adds the nodes of a graph that is launched into a capturing stream.
void add_child(Stream& stream, const Graph& child);

/// Removes all streams from the capture.
void end_capture(Driver& driver, const CapturePtr& capture);

/// Ends a capture, and discards its graph.
void drop_capture(Driver& driver, const CapturePtr& capture);

/// True if the next node of the first stream would depend on all nodes, directly or indirectly.
bool is_joined(const Capture& capture);

/// Returns the capture of a blocking stream of the context, or null. The NULL stream would have to
/// wait for such a stream.
CapturePtr capture_of_blocking_stream(const Driver& driver, const Context& context);
/// The captures in which streams of the context participate.
std::vector<CapturePtr> captures_in(const Driver& driver, const Context& context);

/// Enqueues the nodes of a graph. They run after all earlier commands of `stream`, and before all
/// later ones.
void launch_graph(Driver& driver, GraphExec& exec, Stream& stream);

}  // namespace xylem::fake_cuda
