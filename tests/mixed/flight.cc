// SPDX-License-Identifier: Apache-2.0
#include "mixed/flight.h"

#include <algorithm>
#include <numeric>

namespace xylem::test::mixed {
namespace {

constexpr std::uint64_t kGuard = 64;
/// Time limit for the work on a stream.
constexpr std::chrono::seconds kLimit{60};
constexpr std::byte kGuardByte{0xa5}, kPattern{0x5c};

bool all_are(const std::byte* begin, std::uint64_t bytes, std::byte value) noexcept {
  return std::all_of(begin, begin + bytes, [=](std::byte byte) { return byte == value; });
}

}  // namespace

Place::Place(std::uint64_t bytes, std::uint64_t offset, bool shared) : bytes_(bytes) {
  const std::uint64_t whole = bytes + offset + 2 * kGuard;
  std::byte* memory = nullptr;
  if (shared) {
    auto allocation = allocate(whole);
    if (allocation) {
      shared_ = std::move(*allocation);
      memory = static_cast<std::byte*>(shared_.data());
    }
  }
  if (memory == nullptr) {
    ordinary_.resize(whole);
    memory = ordinary_.data();
  }
  lay(memory, whole, offset);
}

Place::Place(std::uint64_t bytes,
             std::uint64_t offset,
             Device& device,
             Device::Kind kind,
             std::uint32_t stream,
             std::uint32_t last)
    : bytes_(bytes) {
  const std::uint64_t whole = bytes + offset + 2 * kGuard;
  room_ = device.take(whole, kind, stream, last);
  to_address_ = room_.memory.get() - room_.seen.get();
  lay(room_.seen.get(), whole, offset);
}

void Place::lay(std::byte* memory, std::uint64_t whole, std::uint64_t offset) {
  std::fill_n(memory, whole, kGuardByte);
  data_ = memory + kGuard + offset;
}

bool Place::guards_hold() const noexcept {
  return data_ == nullptr || (all_are(data_ - kGuard, kGuard, kGuardByte) &&
                              all_are(data_ + bytes_, kGuard, kGuardByte));
}

void Place::fill() noexcept { std::fill_n(data_, bytes_, kPattern); }

bool Place::is_filled() const noexcept { return all_are(data_, bytes_, kPattern); }

ConstBuffer Flight::in(std::uint64_t count, std::uint64_t at) const {
  const Place& place = in_place_ ? output : input;
  return {place.address_of(in_ + at * size_of(call_.type)), count, call_.type, memory_};
}

Buffer Flight::out(std::uint64_t count) const {
  return {output.address_of(out_), count, call_.type, memory_};
}

Place Flight::make_place(std::uint64_t bytes, std::uint64_t offset, std::uint64_t chance) {
  if (device_ == nullptr) return {bytes, offset, chance % 8 == 0};
  const bool is_pinned =
      may_be_pinned_ && memory_.kind != device_->memory().kind && chance % 8 == 1;
  const auto kind = is_pinned         ? Device::Kind::pinned
                    : chance % 8 == 0 ? Device::Kind::own
                                      : Device::Kind::shared;
  return {bytes, offset, *device_, kind, before_, behind_};
}

/// Makes buffers of `in` and `out` elements. If the call is in place, the input begins at element
/// `in_at` of the output buffer.
void Flight::make(std::uint64_t in, std::uint64_t out, bool in_place, std::uint64_t in_at) {
  const std::uint64_t element = size_of(call_.type);
  const std::uint64_t chance = draw(call_.seed, 30, rank_);
  in_place_ = in_place && chance / 8 % 3 == 0;
  const std::uint64_t offset = chance / 64 % 8 * element;
  output = make_place(out * element, offset, chance);
  out_ = output.data();
  if (in_place_) {
    in_ = out_ + in_at * element;
    return;
  }
  input = make_place(in * element, (offset + element) % (8 * element), chance);
  in_ = input.data();
}

/// Writes `count` elements of this rank's input to the input buffer, beginning with input element
/// `first` at buffer element `at`.
void Flight::write(std::uint64_t count, std::uint64_t at, std::uint64_t first) {
  const std::uint64_t element = size_of(call_.type);
  for (std::uint64_t i = 0; i < count; ++i) {
    store_value(in_ + (at + i) * element, call_.type, value_of(call_, rank_, first + i));
  }
}

void Flight::expect(std::uint64_t at,
                    std::uint64_t count,
                    std::uint32_t rank,
                    std::uint64_t first) {
  parts_.push_back({at, count, rank, first});
}

void Flight::expect_reduced(std::uint64_t count, std::uint64_t first) {
  parts_.push_back({0, count, std::nullopt, first});
}

// ---- streams ----

template <typename Do>
void Flight::for_rooms(const Do& act) const {
  for (const Place* const place : {&input, &output}) {
    if (place->room().memory != nullptr) act(place->room());
  }
}

/// Draws the kind of memory of the buffers, whether the caller states it, and how the call is
/// ordered with streams.
void Flight::draw_order(Binding binding) {
  const bool is_message = call_.kind == Kind::message || call_.kind == Kind::message_any;
  // If devices are bound, the buffers of a collective are in the same kind of memory on all ranks.
  const bool is_agreed = binding != Binding::none && !is_message;
  if (draw(call_.seed, 32, is_agreed ? 0 : rank_) % 3 == 0) device_ = nullptr;
  if (device_ == nullptr) return;
  // On a mesh, either all ranks order a collective by streams, or none does.
  const bool is_order_agreed = is_agreed && binding == Binding::mesh;
  const bool must_be_held = is_order_agreed && draw(call_.seed, 36) % 4 != 0;
  const std::uint64_t chance = draw(call_.seed, 33, rank_);
  const std::uint32_t streams = device_->streams();
  memory_ = device_->memory();
  if (device_->has_streams() && chance / 16 % 2 == 0) memory_ = kFoundByCall;
  const std::uint64_t order = must_be_held ? 4 + chance % 12 : is_order_agreed ? 0 : chance % 16;
  order_ = order < 4 ? Order::none : order < 10 ? Order::held : Order::after;
  if (order_ == Order::after && !device_->has_streams()) order_ = Order::held;
  // In a call without a stream, pinned memory counts as host memory.
  may_be_pinned_ = !is_agreed || order_ != Order::none;
  before_ = behind_ = static_cast<std::uint32_t>(chance / 32 % streams);
  if (order_ == Order::after) behind_ = static_cast<std::uint32_t>(chance / 1024 % streams);
}

Communicator Flight::produce(const Communicator& comm) const {
  if (device_ == nullptr) return comm;
  for_rooms([&](const Room& room) { device_->write(room, before_); });
  if (order_ == Order::none) (void)device_->synchronize(before_, kLimit);
  return comm;
}

void Flight::consume() const {
  for_rooms([&](const Room& room) { device_->read(room, behind_); });
}

Flight Flight::begin(const MixedCall& call,
                     const Communicator& comm,
                     Device* device,
                     bool succeeds) {
  Flight flight;
  flight.call_ = call;
  flight.rank_ = comm.rank();
  flight.size_ = comm.size();
  flight.root_ = call.root % comm.size();
  flight.device_ = device;
  flight.is_all_on_host_ = device == nullptr;
  flight.draw_order(comm.binding());
  if (flight.order_ == Order::none) {
    flight.start(comm);
    return flight;
  }
  device = flight.device_;
  const Stream before = device->stream(flight.before_), behind = device->stream(flight.behind_);
  flight.start(flight.order_ == Order::held ? comm.on(before) : comm.after(before));
  if (flight.order_ == Order::after) {
    const Status sent = flight.work_.block(behind), received = flight.receive_.block(behind);
    if (!sent || !received) flight.refusal_ = sent ? received : sent;
  }
  if (!device->has_streams()) return flight;
  flight.consume();
  const std::uint64_t chance = draw(call.seed, 34, flight.rank_);
  // A call that fails does not make the stream `behind_` wait for the stream `before_`.
  const bool is_ordered = succeeds || flight.before_ == flight.behind_;
  if (is_ordered && chance % 2 == 0) {
    flight.input.release();
    flight.output.release();
  }
  const bool is_message = call.kind == Kind::message || call.kind == Kind::message_any;
  if (succeeds && !is_message && chance / 2 % 4 == 0) flight.work_ = {};
  return flight;
}

Status Flight::wait() const {
  const bool has_streams = device_ != nullptr && device_->has_streams();
  const bool stream_first = draw(call_.seed, 35, rank_) % 2 == 0;
  const auto goes_on = [&] {
    return !has_streams ||
           (device_->synchronize(before_, kLimit) && device_->synchronize(behind_, kLimit));
  };
  if (order_ != Order::none && stream_first && !goes_on()) return stalled();
  Status outcome = this->outcome();
  if (has_streams && order_ == Order::none) consume();
  if (!goes_on()) return stalled();
  return refusal_ ? outcome : refusal_;
}

Status Flight::stalled() { return failure(Code::internal, "the stream does not go on"); }

Status Flight::outcome() const {
  const Status sent = work_.wait(), received = receive_.wait();
  if (!source_) return sent;
  const auto fails_alone = [](const Work& work, const Status& status, std::uint32_t partner) {
    return work.failed_alone() && status.code() == Code::mismatch && status.peer() == partner;
  };
  const bool is_sent = sent || (is_too_long_for(to_) && fails_alone(work_, sent, world_to_));
  if (!is_sent) return sent;
  if (!is_too_long_for(rank_)) return received;
  if (received) return failure(Code::internal, "a message that was too long was received");
  return fails_alone(receive_, received, *source_) ? Status() : received;
}

void Flight::fill() {
  input.fill();
  output.fill();
  if (device_ == nullptr) return;
  for_rooms([&](const Room& room) { device_->write(room, behind_); });
  (void)device_->synchronize(behind_, kLimit);
}

bool Flight::is_filled() const {
  if (device_ != nullptr) {
    consume();
    (void)device_->synchronize(behind_, kLimit);
  }
  return input.is_filled() && output.is_filled();
}

// ---- calls ----

void Flight::start(const Communicator& comm) {
  const std::uint64_t n = size_, count = call_.count;
  const bool is_root = rank_ == root_;
  switch (call_.kind) {
    case Kind::all_reduce:
    case Kind::reduce:
      make(count, count, true, 0);
      write(count, 0, 0);
      if (call_.kind == Kind::all_reduce || is_root) expect_reduced(count, 0);
      work_ = call_.kind == Kind::all_reduce
                  ? produce(comm).all_reduce(in(count), out(count), call_.op)
                  : produce(comm).reduce(in(count), out(count), call_.op, root_);
      return;
    case Kind::broadcast:
      make(count, count, true, 0);
      if (is_root) write(count, 0, 0);
      expect(0, count, root_, 0);
      work_ = produce(comm).broadcast(in(count), out(count), root_);
      return;
    case Kind::all_gather:
    case Kind::gather:
      make(count, n * count, call_.kind == Kind::all_gather || is_root, rank_ * count);
      write(count, 0, 0);
      if (call_.kind == Kind::all_gather || is_root) {
        for (std::uint32_t rank = 0; rank < n; ++rank) expect(rank * count, count, rank, 0);
      }
      work_ = call_.kind == Kind::all_gather
                  ? produce(comm).all_gather(in(count), out(n * count))
                  : produce(comm).gather(in(count), out(n * count), root_);
      return;
    case Kind::reduce_scatter:
      make(n * count, count, false, 0);
      write(n * count, 0, 0);
      expect_reduced(count, rank_ * count);
      work_ = produce(comm).reduce_scatter(in(n * count), out(count), call_.op);
      return;
    case Kind::all_to_all:
      make(n * count, n * count, true, 0);
      write(n * count, 0, 0);
      for (std::uint32_t rank = 0; rank < n; ++rank) {
        expect(rank * count, count, rank, rank_ * count);
      }
      work_ = produce(comm).all_to_all(in(n * count), out(n * count));
      return;
    case Kind::scatter:
      make(n * count, count, false, 0);
      if (is_root) write(n * count, 0, 0);
      expect(0, count, root_, rank_ * count);
      work_ = produce(comm).scatter(in(n * count), out(count), root_);
      return;
    case Kind::barrier: work_ = comm.barrier(); return;
    case Kind::all_gather_v:
    case Kind::reduce_scatter_v:
    case Kind::all_to_all_v: return start_uneven(comm);
    case Kind::message:
    case Kind::message_any: return start_message(comm);
  }
}

void Flight::start_uneven(const Communicator& comm) {
  std::vector<std::uint64_t> counts(size_), sends(size_), receives(size_);
  for (std::uint32_t rank = 0; rank < size_; ++rank) {
    counts[rank] = count_of(call_, rank);
    sends[rank] = count_of(call_, rank_, rank);
    receives[rank] = count_of(call_, rank, rank_);
  }
  const auto sum = [](const auto& of) { return std::reduce(of.begin(), of.end()); };
  const auto before = [](const auto& of, std::uint32_t rank) {
    return std::reduce(of.begin(), of.begin() + rank);
  };
  const std::uint64_t mine = counts[rank_], all = sum(counts);
  if (call_.kind == Kind::all_gather_v) {
    make(mine, all, false, 0);
    write(mine, 0, 0);
    for (std::uint32_t rank = 0; rank < size_; ++rank) {
      expect(before(counts, rank), counts[rank], rank, 0);
    }
    work_ = produce(comm).all_gather_v(in(mine), out(all), counts);
    return;
  }
  if (call_.kind == Kind::reduce_scatter_v) {
    make(all, mine, false, 0);
    write(all, 0, 0);
    expect_reduced(mine, before(counts, rank_));
    work_ = produce(comm).reduce_scatter_v(in(all), out(mine), counts, call_.op);
    return;
  }
  make(sum(sends), sum(receives), false, 0);
  for (std::uint32_t to = 0; to < size_; ++to) write(sends[to], before(sends, to), to * 1000);
  for (std::uint32_t from = 0; from < size_; ++from) {
    expect(before(receives, from), receives[from], from, rank_ * 1000);
  }
  work_ = produce(comm).all_to_all_v(in(sum(sends)), sends, out(sum(receives)), receives);
}

void Flight::start_message(const Communicator& comm) {
  to_ = (rank_ + root_) % size_;
  from_ = (rank_ + size_ - root_) % size_;
  world_to_ = comm.world_rank(to_);
  const std::uint64_t room = room_of(call_, rank_, is_all_on_host_);
  make(call_.count, room, false, 0);
  write(call_.count, 0, 0);
  if (!is_too_long_for(rank_)) expect(0, call_.count, from_, 0);
  source_ = comm.world_rank(from_);
  const bool is_any = call_.kind == Kind::message_any;
  // Tags are reused. A receive from any source has a tag that no other receive uses, since it would
  // otherwise match messages for other receives.
  const std::uint32_t tag = is_any ? 1000 + call_.number : call_.number % 3;
  const auto receive = [&] {
    receive_ = comm.recv(out(room), is_any ? std::nullopt : std::optional(from_), tag);
  };
  // With Order::held, the stream waits until a receive has ended. A send enqueued behind the
  // receive would never run if the next rank waits for it.
  const bool receives_first = order_ != Order::held && draw(call_.seed, 31, rank_) % 2 == 0;
  (void)produce(comm);
  if (receives_first) receive();
  work_ = comm.send(in(call_.count), to_, tag);
  if (!receives_first) receive();
}

std::string Flight::check() const {
  const auto tell = [&](const std::string& what) {
    return "call " + std::to_string(call_.number) + " of kind " +
           std::to_string(static_cast<int>(call_.kind)) + " on communicator " +
           std::to_string(call_.comm) + ", " + std::to_string(call_.count) + " " +
           std::string(name(call_.type)) + ", " + std::string(name(call_.op)) + ", rank " +
           std::to_string(rank_) + " of " + std::to_string(size_) + ": " + what;
  };
  if (!input.guards_hold() || !output.guards_hold()) return tell("a guard was written over");
  const std::uint64_t element = size_of(call_.type);
  if (source_) {
    const bool came_in = !is_too_long_for(rank_);
    const std::uint64_t came = came_in ? call_.count : 0;
    if (came_in && receive_.source() != *source_) {
      return tell("came from " + std::to_string(receive_.source()));
    }
    if (receive_.count() != came) return tell(std::to_string(receive_.count()) + " came");
    const std::byte* const rest = out_ + came * element;
    const auto left = static_cast<std::uint64_t>(output.data() + output.bytes() - rest);
    if (!all_are(rest, left, kGuardByte)) return tell("the rest of the buffer was written");
  }
  for (const Part& part : parts_) {
    for (std::uint64_t i = 0; i < part.count; ++i) {
      const std::uint32_t wanted = part.rank ? value_of(call_, *part.rank, part.first + i)
                                             : reduced(call_, size_, part.first + i);
      if (!holds_value(out_ + (part.at + i) * element, call_.type, wanted)) {
        return tell("element " + std::to_string(part.at + i) + " is not " + std::to_string(wanted));
      }
    }
  }
  return {};
}

}  // namespace xylem::test::mixed
