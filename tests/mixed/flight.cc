// SPDX-License-Identifier: Apache-2.0
#include "mixed/flight.h"

#include <algorithm>
#include <numeric>

namespace xylem::test::mixed {
namespace {

constexpr std::uint64_t kGuard = 64;
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

Place::Place(std::uint64_t bytes, std::uint64_t offset, const DeviceBuffers& device)
    : bytes_(bytes) {
  const std::uint64_t whole = bytes + offset + 2 * kGuard;
  const DeviceRoom room = device.allocate(whole);
  to_address_ = room.address - room.seen;
  lay(room.seen, whole, offset);
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
  return {place.address_of(in_ + at * size_of(call_.type)), count, call_.type,
          device_ != nullptr ? device_->memory : Memory{}};
}

Buffer Flight::out(std::uint64_t count) const {
  return {output.address_of(out_), count, call_.type,
          device_ != nullptr ? device_->memory : Memory{}};
}

/// Makes buffers of `in` and `out` elements. If the call is in place, the input begins at element
/// `in_at` of the output buffer.
void Flight::make(std::uint64_t in, std::uint64_t out, bool in_place, std::uint64_t in_at) {
  const std::uint64_t element = size_of(call_.type);
  const std::uint64_t chance = draw(call_.seed, 30, rank_);
  const bool is_shared = chance % 8 == 0;
  in_place_ = in_place && chance / 8 % 3 == 0;
  const std::uint64_t offset = chance / 64 % 8 * element;
  const auto place = [&](std::uint64_t bytes, std::uint64_t from) {
    return device_ != nullptr ? Place(bytes, from, *device_) : Place(bytes, from, is_shared);
  };
  output = place(out * element, offset);
  out_ = output.data();
  if (in_place_) {
    in_ = out_ + in_at * element;
    return;
  }
  input = place(in * element, (offset + element) % (8 * element));
  in_ = input.data();
}

/// Writes `count` elements of this rank's input, beginning with its element `first`, at element
/// `at` of the input buffer.
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

Flight Flight::begin(const MixedCall& call, const Communicator& comm, const DeviceBuffers* device) {
  Flight flight;
  flight.call_ = call;
  flight.rank_ = comm.rank();
  flight.size_ = comm.size();
  flight.root_ = call.root % comm.size();
  if (draw(call.seed, 32, flight.rank_) % 3 != 0) flight.device_ = device;
  const bool on_stream = flight.device_ != nullptr && draw(call.seed, 33, flight.rank_) % 3 != 0;
  flight.start(on_stream ? comm.on({nullptr, device->memory}) : comm);
  return flight;
}

void Flight::start(const Communicator& comm) {
  const std::uint64_t n = size_, count = call_.count;
  const bool is_root = rank_ == root_;
  switch (call_.kind) {
    case Kind::all_reduce:
    case Kind::reduce:
      make(count, count, true, 0);
      write(count, 0, 0);
      if (call_.kind == Kind::all_reduce || is_root) expect_reduced(count, 0);
      work_ = call_.kind == Kind::all_reduce ? comm.all_reduce(in(count), out(count), call_.op)
                                             : comm.reduce(in(count), out(count), call_.op, root_);
      return;
    case Kind::broadcast:
      make(count, count, true, 0);
      if (is_root) write(count, 0, 0);
      expect(0, count, root_, 0);
      work_ = comm.broadcast(in(count), out(count), root_);
      return;
    case Kind::all_gather:
    case Kind::gather:
      make(count, n * count, call_.kind == Kind::all_gather || is_root, rank_ * count);
      write(count, 0, 0);
      if (call_.kind == Kind::all_gather || is_root) {
        for (std::uint32_t rank = 0; rank < n; ++rank) expect(rank * count, count, rank, 0);
      }
      work_ = call_.kind == Kind::all_gather ? comm.all_gather(in(count), out(n * count))
                                             : comm.gather(in(count), out(n * count), root_);
      return;
    case Kind::reduce_scatter:
      make(n * count, count, false, 0);
      write(n * count, 0, 0);
      expect_reduced(count, rank_ * count);
      work_ = comm.reduce_scatter(in(n * count), out(count), call_.op);
      return;
    case Kind::all_to_all:
      make(n * count, n * count, true, 0);
      write(n * count, 0, 0);
      for (std::uint32_t rank = 0; rank < n; ++rank) {
        expect(rank * count, count, rank, rank_ * count);
      }
      work_ = comm.all_to_all(in(n * count), out(n * count));
      return;
    case Kind::scatter:
      make(n * count, count, false, 0);
      if (is_root) write(n * count, 0, 0);
      expect(0, count, root_, rank_ * count);
      work_ = comm.scatter(in(n * count), out(count), root_);
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
    work_ = comm.all_gather_v(in(mine), out(all), counts);
    return;
  }
  if (call_.kind == Kind::reduce_scatter_v) {
    make(all, mine, false, 0);
    write(all, 0, 0);
    expect_reduced(mine, before(counts, rank_));
    work_ = comm.reduce_scatter_v(in(all), out(mine), counts, call_.op);
    return;
  }
  make(sum(sends), sum(receives), false, 0);
  for (std::uint32_t to = 0; to < size_; ++to) write(sends[to], before(sends, to), to * 1000);
  for (std::uint32_t from = 0; from < size_; ++from) {
    expect(before(receives, from), receives[from], from, rank_ * 1000);
  }
  work_ = comm.all_to_all_v(in(sum(sends)), sends, out(sum(receives)), receives);
}

void Flight::start_message(const Communicator& comm) {
  const std::uint32_t to = (rank_ + root_) % size_, from = (rank_ + size_ - root_) % size_;
  make(call_.count, call_.count, false, 0);
  write(call_.count, 0, 0);
  expect(0, call_.count, from, 0);
  source_ = comm.world_rank(from);
  const bool is_any = call_.kind == Kind::message_any;
  // Tags repeat. A receive from any source has a tag of its own, since it would otherwise match
  // messages that are meant for other receives.
  const std::uint32_t tag = is_any ? 1000 + call_.number : call_.number % 3;
  const auto receive = [&] {
    receive_ = comm.recv(out(call_.count), is_any ? std::nullopt : std::optional(from), tag);
  };
  const bool receives_first = draw(call_.seed, 31, rank_) % 2 == 0;
  if (receives_first) receive();
  work_ = comm.send(in(call_.count), to, tag);
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
  if (source_ && receive_.source() != *source_) {
    return tell("came from " + std::to_string(receive_.source()));
  }
  const std::uint64_t element = size_of(call_.type);
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
