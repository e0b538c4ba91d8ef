// SPDX-License-Identifier: Apache-2.0
#include "measuring_pair.h"

#include "context.h"
#include "groups/group.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

namespace xylem::runtime {
namespace {

constexpr std::uint32_t kTag = 0;

}  // namespace

Status complete(Group& world, Call&& call, Deadline deadline) {
  const Work work = world.submit(std::move(call));
  return complete(work, deadline);
}

Status complete(const Work& work, Deadline deadline) {
  work.set_timeout(deadline.left());
  Status status = work.wait();
  if (status.code() != Code::timed_out) return status;
  return failure(
      Code::timed_out,
      fmt::format("the start took longer than XYLEM_START_TIMEOUT: {}", status.message()),
      status.peer());
}

// The calls own their buffers: an operation may exist after its Work has ended with an error.

Status broadcast(Group& world, void* data, std::uint64_t bytes, Deadline deadline) {
  const auto buffer = std::make_shared<std::vector<std::byte>>(bytes);
  std::memcpy(buffer->data(), data, bytes);
  Call call;
  call.collective = collectives::Collective::broadcast;
  call.type = DataType::uint8;
  call.count = bytes;
  call.input = call.output = buffer->data();
  call.owned = buffer;
  XYLEM_TRY(complete(world, std::move(call), deadline));
  std::memcpy(data, buffer->data(), bytes);
  return {};
}

Status all_gather(
    Group& world, const void* mine, std::uint64_t bytes, void* all, Deadline deadline) {
  const std::uint64_t ranks = world.spec().size();
  const auto buffer = std::make_shared<std::vector<std::byte>>(bytes * (ranks + 1));
  std::memcpy(buffer->data(), mine, bytes);
  Call call;
  call.collective = collectives::Collective::all_gather;
  call.type = DataType::uint8;
  call.count = bytes;
  call.input = buffer->data();
  call.output = buffer->data() + bytes;
  call.owned = buffer;
  XYLEM_TRY(complete(world, std::move(call), deadline));
  std::memcpy(all, buffer->data() + bytes, bytes * ranks);
  return {};
}

MeasuringPair::MeasuringPair(
    Context& context, Group& world, std::uint32_t partner, std::uint64_t longest, Deadline deadline)
    : context_(context),
      world_(world),
      partner_(partner),
      deadline_(deadline),
      slice_bytes_(context.config().slice.value),
      sent_(std::make_shared<std::vector<std::byte>>(longest)),
      received_(std::make_shared<std::vector<std::byte>>(longest)) {}

bool MeasuringPair::follows() const { return partner_ < world_.spec().rank; }

Result<double> MeasuringPair::round_trip() {
  const auto begin = Clock::now();
  XYLEM_TRY(send({.action = Action::answer, .bytes = sizeof(Order)}));
  send_us_ = std::min(send_us_, in_microseconds(Clock::now() - begin));
  XYLEM_TRY(transfer(CallKind::recv, order_, sizeof(Order)));
  return in_microseconds(Clock::now() - begin) / 2;
}

Result<double> MeasuringPair::round_trip(std::uint64_t bytes, std::uint64_t pull_from) {
  XYLEM_TRY(send({.action = Action::answer, .bytes = bytes, .pull_from = pull_from}));
  context_.pull_from(pull_from);
  const auto begin = Clock::now();
  XYLEM_TRY(transfer(CallKind::send, sent_, bytes));
  XYLEM_TRY(transfer(CallKind::recv, received_, bytes));
  return in_microseconds(Clock::now() - begin) / 2;
}

Result<double> MeasuringPair::exchange(std::uint64_t bytes) {
  XYLEM_TRY(send({.action = Action::exchange, .bytes = bytes}));
  const auto begin = Clock::now();
  XYLEM_TRY(transfer_both_ways(bytes));
  return in_microseconds(Clock::now() - begin);
}

Result<double> MeasuringPair::stream(std::uint32_t count) {
  XYLEM_TRY(send({.action = Action::receive_many, .count = count}));
  const auto begin = Clock::now();
  XYLEM_TRY(transfer_many(CallKind::send, count));
  XYLEM_TRY(transfer(CallKind::recv, order_, sizeof(Order)));
  return in_microseconds(Clock::now() - begin);
}

Status MeasuringPair::end() { return send({}); }

Status MeasuringPair::follow() {
  for (;;) {
    XYLEM_TRY(transfer(CallKind::recv, order_, sizeof(Order)));
    Order order;
    std::memcpy(&order, order_->data(), sizeof order);
    if (order.action == Action::end) return {};
    XYLEM_TRY(carry_out(order));
  }
}

Status MeasuringPair::carry_out(const Order& order) {
  switch (order.action) {
    case Action::end: break;
    case Action::exchange: return transfer_both_ways(order.bytes);
    case Action::receive_many:
      XYLEM_TRY(transfer_many(CallKind::recv, order.count));
      return transfer(CallKind::send, order_, sizeof(Order));
    case Action::answer:
      if (order.bytes == sizeof(Order)) return transfer(CallKind::send, order_, sizeof(Order));
      context_.pull_from(order.pull_from);
      XYLEM_TRY(transfer(CallKind::recv, received_, order.bytes));
      return transfer(CallKind::send, sent_, order.bytes);
  }
  return {};
}

Status MeasuringPair::send(const Order& order) {
  std::memcpy(order_->data(), &order, sizeof order);
  return transfer(CallKind::send, order_, sizeof order);
}

Call MeasuringPair::message(CallKind kind, const Memory& memory, std::uint64_t bytes) const {
  Call call;
  call.kind = kind;
  call.type = DataType::uint8;
  call.count = std::min<std::uint64_t>(bytes, memory->size());
  call.peer = partner_;
  call.tag = kTag;
  call.input = memory->data();
  call.output = memory->data();
  call.owned = memory;
  return call;
}

Status MeasuringPair::transfer(CallKind kind, const Memory& memory, std::uint64_t bytes) {
  return complete(world_, message(kind, memory, bytes), deadline_);
}

Status MeasuringPair::transfer_both_ways(std::uint64_t bytes) {
  std::vector<Work> works;
  for (std::uint64_t left = bytes; left > 0; left -= std::min(left, slice_bytes_)) {
    works.push_back(
        world_.submit(message(CallKind::recv, received_, std::min(left, slice_bytes_))));
    works.push_back(world_.submit(message(CallKind::send, sent_, std::min(left, slice_bytes_))));
  }
  return complete_all(works);
}

Status MeasuringPair::transfer_many(CallKind kind, std::uint32_t count) {
  std::vector<Work> works;
  works.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    works.push_back(world_.submit(message(kind, order_, sizeof(Order))));
  }
  return complete_all(works);
}

Status MeasuringPair::complete_all(std::span<const Work> works) const {
  Status all;
  for (const Work& work : works) {
    const Status one = complete(work, deadline_);
    if (all.is_ok()) all = one;
  }
  return all;
}

}  // namespace xylem::runtime
