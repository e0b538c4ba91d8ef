// SPDX-License-Identifier: Apache-2.0
//
// Makes and checks calls.
#include "bench/call.h"

#include <algorithm>
#include <string>
#include <utility>

namespace xylem::tools {
Call::Call(Communicator communicator, Operation operation, const BenchOptions& options)
    : communicator_(std::move(communicator)),
      operation_(operation),
      type_(options.type),
      root_(options.root),
      in_place_(options.in_place && traits(operation).in_place),
      offset_(options.offset.value),
      parts_(options.parts) {}

Result<Call> Call::create(const Communicator& communicator,
                          Operation operation,
                          const BenchOptions& options,
                          Bytes largest) {
  Call call(communicator, operation, options);
  const bool reduces = traits(operation).reduces;
  const std::uint32_t ranks = communicator.size();
  const Pattern pattern =
      reduces ? Pattern::reduced(options.type, options.redop, ranks) : Pattern::moved(options.type);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    // A reduction needs only this rank's input and the result.
    const bool needed = !reduces || rank == communicator.rank();
    call.inputs_.push_back(needed ? pattern.input(rank) : std::vector<std::byte>());
  }
  if (reduces) {
    call.redop_ = pattern.reduce_op(communicator.rank());
    if (options.check) call.reduced_ = pattern.result();
  }
  const Geometry most = geometry(call.query(largest));
  const std::size_t bytes =
      call.offset_ + std::max(most.input, most.output) * size_of(options.type);
  const auto allocate = options.allocate ? &PageBuffer::allocate_shared : &PageBuffer::allocate;
  XYLEM_TRY(call.first_, allocate(bytes));
  if (!call.in_place_) {
    XYLEM_TRY(call.second_, allocate(bytes));
  }
  return call;
}

GeometryQuery Call::query(Bytes size) const {
  return {operation_,           size,  size_of(type_), communicator_.rank(),
          communicator_.size(), root_, parts_};
}

const Geometry& Call::resize(Bytes size) {
  geometry_ = geometry(query(size));
  return geometry_;
}

ConstBuffer Call::input() const {
  // In place, the smaller of input and output is a part of the larger one, on ranks that have both.
  const bool part = in_place_ && geometry_.input != 0 && geometry_.input < geometry_.output;
  return {first_.data() + offset_ + (part ? geometry_.in_place_at * size_of(type_) : 0),
          geometry_.input, type_};
}

Buffer Call::output() const {
  if (!in_place_) return {second_.data() + offset_, geometry_.output, type_};
  const bool part = geometry_.output != 0 && geometry_.output < geometry_.input;
  return {first_.data() + offset_ + (part ? geometry_.in_place_at * size_of(type_) : 0),
          geometry_.output, type_};
}

Status Call::operator()() const {
  const Communicator& comm = communicator_;
  switch (operation_) {
    case Operation::all_reduce: return comm.all_reduce(input(), output(), redop_).wait();
    case Operation::reduce: return comm.reduce(input(), output(), redop_, root_).wait();
    case Operation::broadcast: return comm.broadcast(input(), output(), root_).wait();
    case Operation::all_gather: return comm.all_gather(input(), output()).wait();
    case Operation::all_gather_v:
      return comm.all_gather_v(input(), output(), geometry_.receive_counts).wait();
    case Operation::reduce_scatter: return comm.reduce_scatter(input(), output(), redop_).wait();
    case Operation::reduce_scatter_v:
      return comm.reduce_scatter_v(input(), output(), geometry_.send_counts, redop_).wait();
    case Operation::all_to_all: return comm.all_to_all(input(), output()).wait();
    case Operation::all_to_all_v:
      return comm.all_to_all_v(input(), geometry_.send_counts, output(), geometry_.receive_counts)
          .wait();
    case Operation::gather: return comm.gather(input(), output(), root_).wait();
    case Operation::scatter: return comm.scatter(input(), output(), root_).wait();
    case Operation::barrier: return comm.barrier().wait();
    case Operation::send_recv: return send_recv();
    case Operation::exchange: return exchange();
    case Operation::ping_pong: return ping_pong();
  }
  return {};
}

Status Call::send_recv() const {
  const std::uint32_t rank = communicator_.rank();
  const std::uint32_t size = communicator_.size();
  const Work sent = communicator_.send(input(), (rank + 1) % size);
  const Work received = communicator_.recv(output(), (rank + size - 1) % size);
  return wait_all(sent, received);
}

/// Makes a call of exchange as a program does that posts its receives early, and waits for each
/// operation by itself.
Status Call::exchange() const {
  const std::uint32_t rank = communicator_.rank();
  const std::uint32_t size = communicator_.size();
  const Work received = communicator_.recv(output(), (rank + size - 1) % size);
  const Work sent = communicator_.send(input(), (rank + 1) % size);
  const Status arrived = received.wait();
  const Status left = sent.wait();
  return arrived ? left : arrived;
}

/// Makes a call of ping_pong. Ranks from 2 on have no part in it.
Status Call::ping_pong() const {
  const std::uint32_t rank = communicator_.rank();
  if (rank > 1) return {};
  if (rank == 0) {
    XYLEM_TRY(communicator_.send(input(), 1).wait());
    return communicator_.recv(output(), 1).wait();
  }
  XYLEM_TRY(communicator_.recv(output(), 0).wait());
  return communicator_.send(input(), 0).wait();
}

std::span<const std::byte> Call::expected(const Region& region) const {
  return region.source ? inputs_[*region.source] : reduced_;
}

void Call::prepare() const {
  const std::size_t size = size_of(type_);
  auto* const out = static_cast<std::byte*>(output().data);
  for (const Region& region : geometry_.result) {
    const auto right = expected(region);
    if (right.empty()) continue;  // nothing will be checked
    fill(out + region.at * size, region.from, region.count, right, /*inverted=*/true);
  }
  // In place this overwrites a part of the above, so it comes last.
  fill(const_cast<std::byte*>(static_cast<const std::byte*>(input().data)), 0, geometry_.input,
       inputs_[communicator_.rank()]);
}

std::uint64_t Call::count_wrong() const {
  const std::size_t size = size_of(type_);
  const auto* const out = static_cast<const std::byte*>(output().data);
  std::uint64_t wrong = 0;
  for (const Region& region : geometry_.result) {
    wrong +=
        tools::count_wrong(out + region.at * size, region.from, region.count, expected(region));
  }
  return wrong;
}

}  // namespace xylem::tools
