// SPDX-License-Identifier: Apache-2.0
//
// Graphs, and the capture of streams by which they are made. While a stream captures, enqueue()
// adds what the stream is given as nodes to a graph, and runs nothing. Each node depends on the
// newest nodes of its stream, and an event carries such dependencies to other streams.
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
  bool waits = false;  ///< For a word.
  std::vector<std::shared_ptr<Node>> after;
  Device* device = nullptr;
  std::size_t branch = 0;  ///< Which stream of the capture it is from. Each has a queue of its own.
};
using NodePtr = std::shared_ptr<Node>;

struct Graph {
  CUgraph handle = nullptr;
  std::vector<NodePtr> nodes;  ///< Each comes after those that it depends on.
};

/// A graph that can be launched. Its launches run one after the other.
struct GraphExec {
  std::shared_ptr<const Graph> graph;
  CommandPtr last;
};

/// What a stream captures, together with the streams that have joined.
struct Capture {
  unsigned long long id = 0;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::uint64_t thread = 0;  ///< Which began it.
  bool is_invalid = false;
  std::shared_ptr<Graph> graph;
  std::vector<std::shared_ptr<Stream>> streams;  ///< The first began the capture.
};
using CapturePtr = std::shared_ptr<Capture>;

/// Takes part in a capture: what the stream is given next depends on `after`.
void join_capture(const std::shared_ptr<Stream>& stream,
                  const CapturePtr& capture,
                  const std::vector<NodePtr>& after);

/// Adds a node to the capture of a stream.
void add_node(Stream& stream, std::function<void(const Run&)> run, bool waits);
/// Adds the nodes of a graph that is launched into a capturing stream.
void add_child(Stream& stream, const Graph& child);

/// Takes all streams out of the capture.
void end_capture(Driver& driver, const CapturePtr& capture);

/// Ends a capture whose graph nobody gets.
void drop_capture(Driver& driver, const CapturePtr& capture);

/// True if all nodes come before what the first stream is given next.
bool is_joined(const Capture& capture);

/// A blocking stream of the context that captures: the NULL stream would have to wait for it.
CapturePtr capture_of_blocking_stream(const Driver& driver, const Context& context);
/// The captures in which streams of the context take part.
std::vector<CapturePtr> captures_in(const Driver& driver, const Context& context);

/// Enqueues the nodes, between what the stream was given before and what it is given after.
void launch_graph(Driver& driver, GraphExec& exec, Stream& stream);

}  // namespace xylem::fake_cuda
