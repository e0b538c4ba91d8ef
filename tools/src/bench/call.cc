// SPDX-License-Identifier: Apache-2.0
//
// Makes and checks calls.
#include "bench/call.h"

#include <algorithm>
#include <string>
#include <utility>

namespace xylem::tools {

namespace {

/// The most calls in the order of a stream that are pending at a time. Each call uses two gates of
/// the device (cuda/gates.h), and a call of two messages uses four.
constexpr std::size_t kMostPending = 512;

}  // namespace

Call::Call(const Communicator& communicator,
           Operation operation,
           const BenchOptions& options,
           const Place& place)
    : place_(place),
      communicator_(place.handle(communicator)),
      operation_(operation),
      type_(options.type),
      root_(options.root),
      in_place_(options.in_place && traits(operation).in_place),
      offset_(options.offset.value),
      parts_(options.parts) {}

Result<Call> Call::create(const Communicator& communicator,
                          Operation operation,
                          const BenchOptions& options,
                          const Place& place,
                          Bytes largest) {
  Call call(communicator, operation, options, place);
  const bool reduces = traits(operation).reduces;
  const std::uint32_t ranks = communicator.size();
  const Pattern pattern =
      reduces ? Pattern::reduced(options.type, options.redop, ranks) : Pattern::moved(options.type);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    // For a reduction, only this rank's input and the result are needed.
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
  const auto allocate = [&](std::size_t size) {
    return options.allocate || place.is_on_device()
               ? PageBuffer::allocate_by_library(size, place.memory())
               : PageBuffer::allocate(size);
  };
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
          geometry_.input, type_, place_.memory()};
}

Buffer Call::output() const {
  if (!in_place_) return {second_.data() + offset_, geometry_.output, type_, place_.memory()};
  const bool part = geometry_.output != 0 && geometry_.output < geometry_.input;
  return {first_.data() + offset_ + (part ? geometry_.in_place_at * size_of(type_) : 0),
          geometry_.output, type_, place_.memory()};
}

template <typename... Works>
Status Call::settle(const Works&... works) const {
  if (!place_.orders_calls()) return wait_all(works...);
  (pending_.push_back(works), ...);
  return pending_.size() < kMostPending ? Status() : finish();
}

Status Call::operator()() const {
  XYLEM_TRY(begin());
  return finish();
}

Status Call::finish() const {
  if (!place_.orders_calls()) return {};
  XYLEM_TRY(place_.wait_for_stream());
  Status first;
  for (const Work& work : pending_) {
    Status status = work.wait();
    if (first && !status) first = std::move(status);
  }
  pending_.clear();
  return first;
}

Status Call::begin() const {
  const Communicator& comm = communicator_;
  switch (operation_) {
    case Operation::all_reduce: return settle(comm.all_reduce(input(), output(), redop_));
    case Operation::reduce: return settle(comm.reduce(input(), output(), redop_, root_));
    case Operation::broadcast: return settle(comm.broadcast(input(), output(), root_));
    case Operation::all_gather: return settle(comm.all_gather(input(), output()));
    case Operation::all_gather_v:
      return settle(comm.all_gather_v(input(), output(), geometry_.receive_counts));
    case Operation::reduce_scatter: return settle(comm.reduce_scatter(input(), output(), redop_));
    case Operation::reduce_scatter_v:
      return settle(comm.reduce_scatter_v(input(), output(), geometry_.send_counts, redop_));
    case Operation::all_to_all: return settle(comm.all_to_all(input(), output()));
    case Operation::all_to_all_v:
      return settle(
          comm.all_to_all_v(input(), geometry_.send_counts, output(), geometry_.receive_counts));
    case Operation::gather: return settle(comm.gather(input(), output(), root_));
    case Operation::scatter: return settle(comm.scatter(input(), output(), root_));
    case Operation::barrier: return settle(comm.barrier());
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
  return settle(sent, received);
}

/// Makes a call of Operation::exchange: like a program that posts its receives early, and waits for
/// each operation separately.
Status Call::exchange() const {
  const std::uint32_t rank = communicator_.rank();
  const std::uint32_t size = communicator_.size();
  const Work received = communicator_.recv(output(), (rank + size - 1) % size);
  const Work sent = communicator_.send(input(), (rank + 1) % size);
  const Status arrived = received.wait();
  const Status left = sent.wait();
  return arrived ? left : arrived;
}

/// Makes a call of ping_pong. Ranks 2 and above send and receive nothing.
Status Call::ping_pong() const {
  const std::uint32_t rank = communicator_.rank();
  if (rank > 1) return {};
  if (rank == 0) {
    XYLEM_TRY(settle(communicator_.send(input(), 1)));
    return settle(communicator_.recv(output(), 1));
  }
  XYLEM_TRY(settle(communicator_.recv(output(), 0)));
  return settle(communicator_.send(input(), 0));
}

std::span<const std::byte> Call::expected(const Region& region) const {
  return region.source ? inputs_[*region.source] : reduced_;
}

Status Call::write(std::byte* target,
                   std::size_t from,
                   std::size_t count,
                   std::span<const std::byte> period,
                   bool inverted) const {
  if (!place_.is_on_device()) {
    fill(target, from, count, period, inverted);
    return {};
  }
  mirror_.resize(count * size_of(type_));
  fill(mirror_.data(), from, count, period, inverted);
  return place_.copy(target, mirror_.data(), mirror_.size());
}

Status Call::prepare() const {
  const std::size_t size = size_of(type_);
  auto* const out = static_cast<std::byte*>(output().data);
  for (const Region& region : geometry_.result) {
    const auto right = expected(region);
    if (right.empty()) continue;  // --check is off.
    XYLEM_TRY(write(out + region.at * size, region.from, region.count, right, /*inverted=*/true));
  }
  // In place, the input overwrites a part of what was written above, so it is written last.
  return write(const_cast<std::byte*>(static_cast<const std::byte*>(input().data)), 0,
               geometry_.input, inputs_[communicator_.rank()], /*inverted=*/false);
}

Result<std::uint64_t> Call::count_wrong() const {
  const std::size_t size = size_of(type_);
  const auto* const out = static_cast<const std::byte*>(output().data);
  std::uint64_t wrong = 0;
  for (const Region& region : geometry_.result) {
    const std::byte* found = out + region.at * size;
    if (place_.is_on_device()) {
      mirror_.resize(region.count * size);
      XYLEM_TRY(place_.copy(mirror_.data(), found, mirror_.size()));
      found = mirror_.data();
    }
    wrong += tools::count_wrong(found, region.from, region.count, expected(region));
  }
  return wrong;
}

}  // namespace xylem::tools
