// SPDX-License-Identifier: Apache-2.0
#include "fakes/cuda_driver/graph.h"

#include "fakes/cuda_driver/driver.h"

#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <utility>

namespace xylem::fake_cuda {
namespace {

bool takes_part(const Capture& capture, const std::function<bool(const Stream&)>& predicate) {
  return std::any_of(capture.streams.begin(), capture.streams.end(),
                     [&](const StreamPtr& stream) { return predicate(*stream); });
}

}  // namespace

void join_capture(const StreamPtr& stream,
                  const CapturePtr& capture,
                  const std::vector<NodePtr>& after) {
  if (stream->capture == nullptr) {
    stream->capture = capture;
    stream->branch = capture->streams.size();
    capture->streams.push_back(stream);
  }
  for (const NodePtr& node : after) {
    if (std::find(stream->newest.begin(), stream->newest.end(), node) == stream->newest.end()) {
      stream->newest.push_back(node);
    }
  }
}

void add_node(Stream& stream, std::function<void(const Run&)> run, bool waits) {
  auto node = std::make_shared<Node>();
  node->handle = std::bit_cast<CUgraphNode>(new_handle());
  node->run = std::move(run);
  node->waits = waits;
  node->after = std::move(stream.newest);
  node->device = stream.context->device;
  node->branch = stream.branch;
  stream.newest = {node};
  stream.capture->graph->nodes.push_back(std::move(node));
}

void add_child(Stream& stream, const Graph& child) {
  const std::vector<NodePtr> before = stream.newest;
  std::map<const Node*, NodePtr> copies;
  std::set<NodePtr> leaves;
  for (const NodePtr& original : child.nodes) {
    auto node = std::make_shared<Node>(*original);
    node->handle = std::bit_cast<CUgraphNode>(new_handle());
    node->branch += stream.branch;
    node->after = original->after.empty() ? before : std::vector<NodePtr>();
    for (const NodePtr& other : original->after) {
      node->after.push_back(copies.at(other.get()));
      leaves.erase(copies.at(other.get()));
    }
    copies.emplace(original.get(), node);
    leaves.insert(node);
    stream.capture->graph->nodes.push_back(std::move(node));
  }
  if (!leaves.empty()) stream.newest.assign(leaves.begin(), leaves.end());
}

void end_capture(Driver& driver, const CapturePtr& capture) {
  for (const StreamPtr& stream : capture->streams) {
    stream->capture = nullptr;
    stream->newest.clear();
  }
  capture->streams.clear();
  std::erase(driver.captures, capture);
}

void drop_capture(Driver& driver, const CapturePtr& capture) {
  const CapturePtr held = capture;
  end_capture(driver, held);
  driver.graphs.remove(held->graph->handle);
}

bool is_joined(const Capture& capture) {
  std::vector<NodePtr> open = capture.streams.front()->newest;
  std::set<NodePtr> before(open.begin(), open.end());
  while (!open.empty()) {
    const NodePtr node = open.back();
    open.pop_back();
    for (const NodePtr& other : node->after) {
      if (before.insert(other).second) open.push_back(other);
    }
  }
  return before.size() == capture.graph->nodes.size();
}

CapturePtr capture_of_blocking_stream(const Driver& driver, const Context& context) {
  for (const CapturePtr& capture : driver.captures) {
    if (takes_part(*capture, [&](const Stream& stream) {
          return stream.context == &context && stream.is_blocking();
        })) {
      return capture;
    }
  }
  return nullptr;
}

std::vector<CapturePtr> captures_in(const Driver& driver, const Context& context) {
  std::vector<CapturePtr> found;
  for (const CapturePtr& capture : driver.captures) {
    if (takes_part(*capture, [&](const Stream& stream) { return stream.context == &context; })) {
      found.push_back(capture);
    }
  }
  return found;
}

void launch_graph(Driver& driver, GraphExec& exec, Stream& stream) {
  std::vector<CommandPtr> before;
  if (exec.last != nullptr && !exec.last->is_done) before.push_back(exec.last);
  const CommandPtr begin = enqueue(driver, stream, {}, std::move(before));
  std::map<const Node*, CommandPtr> commands;
  // The nodes of the first captured stream use the queue of the stream in which the graph is
  // launched. Each other branch gets its own queue.
  std::map<std::pair<const Device*, std::size_t>, Queue*> queues;
  queues[{stream.context->device, 0}] = stream.queue;
  for (const NodePtr& node : exec.graph->nodes) {
    auto command = std::make_shared<Command>();
    if (node->run) command->run = [node](const Run& run) { node->run(run); };
    for (const NodePtr& other : node->after) command->after.push_back(commands.at(other.get()));
    if (node->after.empty()) command->after.push_back(begin);
    command->waits = node->waits;
    Queue*& queue = queues[{node->device, node->branch}];
    if (queue == nullptr) queue = &node->device->best_queue(0);
    if (queue == stream.queue) command->stream = stream.number;
    queue->push(command);
    commands.emplace(node.get(), std::move(command));
  }
  std::vector<CommandPtr> all;
  for (const auto& [node, command] : commands) all.push_back(command);
  exec.last = enqueue(driver, stream, {}, std::move(all));
}

}  // namespace xylem::fake_cuda
