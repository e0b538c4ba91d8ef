// SPDX-License-Identifier: Apache-2.0
#include "fakes/delayed_compute.h"

#include "xylem/base/check.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace xylem::test {
namespace {

constexpr std::size_t kAlignment = 256;

std::byte* map(std::size_t bytes, int protection, int flags, int file) {
  void* memory = mmap(nullptr, bytes, protection, flags, file, 0);
  XYLEM_CHECK(memory != MAP_FAILED, bytes);
  return static_cast<std::byte*>(memory);
}

}  // namespace

DeviceMemory::DeviceMemory(std::size_t bytes)
    : bytes_(bytes), file_(memfd_create("made-up device", MFD_CLOEXEC)) {
  XYLEM_CHECK(ftruncate(file_.get(), static_cast<off_t>(bytes)) == 0, bytes);
  forbidden_ = map(bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
  backing_ = map(bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get());
}

DeviceMemory::~DeviceMemory() {
  munmap(forbidden_, bytes_);
  munmap(backing_, bytes_);
}

std::byte* DeviceMemory::allocate(std::size_t bytes) {
  XYLEM_CHECK(bytes <= bytes_ - used_, bytes, used_);
  std::byte* const address = forbidden_ + used_;
  used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  used_ = std::min(used_, bytes_);
  return address;
}

bool DeviceMemory::contains(const void* address) const noexcept {
  const auto* at = static_cast<const std::byte*>(address);
  return at >= forbidden_ && at < forbidden_ + bytes_;
}

std::byte* DeviceMemory::seen_by_device(const void* address) const noexcept {
  auto* at = static_cast<std::byte*>(const_cast<void*>(address));
  return contains(address) ? backing_ + (at - forbidden_) : at;
}

void DeviceMemory::write(std::byte* device, const void* source, std::size_t bytes) const {
  if (bytes > 0) std::memcpy(seen_by_device(device), source, bytes);
}

void DeviceMemory::read(void* target, const std::byte* device, std::size_t bytes) const {
  if (bytes > 0) std::memcpy(target, seen_by_device(device), bytes);
}

DelayedCompute::DelayedCompute(const DeviceMemory& memory, DelayedComputeOptions options)
    : memory_(memory), options_(options), random_(options.seed), queues_(options.queues) {}

DelayedCompute::~DelayedCompute() {
  for (const Queue& queue : queues_) XYLEM_CHECK(queue.waiting.empty(), queue.waiting.size());
}

DelayedCompute::Ticket DelayedCompute::make_gate() { return {++gates_, options_.queues}; }

DelayedCompute::Ticket DelayedCompute::make_end() { return {++ends_, options_.queues + 1}; }

bool DelayedCompute::is_open(Ticket gate) const { return open_gates_.contains(gate.number); }

DelayedCompute::Ticket DelayedCompute::enqueue(std::uint32_t queue,
                                               const execution::ComputeWork& work,
                                               std::span<const Ticket> after) noexcept {
  XYLEM_CHECK(queue < queues_.size() && work.shared == nullptr, queue, queues_.size());
  Piece piece{work,
              {work.sources.begin(), work.sources.end()},
              {after.begin(), after.end()},
              /*is_cancelled=*/false};
  piece.work.sources = {};
  queues_[queue].waiting.push_back(std::move(piece));
  return {queues_[queue].completed + queues_[queue].waiting.size(), queue};
}

bool DelayedCompute::has_completed(Ticket ticket) noexcept {
  for (auto pieces = random_() % 3; pieces > 0; --pieces) run_one();
  if (options_.opens_gates && random_() % 4 == 0) open_one();
  return is_done(ticket);
}

bool DelayedCompute::is_done(Ticket ticket) const {
  if (ticket.queue == options_.queues) return is_open(ticket);
  return queues_[ticket.queue].completed >= ticket.number;
}

bool DelayedCompute::may_run(const Piece& piece) const {
  if (options_.ignores_order || !health()) return true;
  if (piece.is_cancelled && !options_.keeps_cancelled) return true;
  return std::ranges::all_of(piece.after, [this](Ticket ticket) { return is_done(ticket); });
}

/// Opens a random gate, which may be open already. Does nothing if there are no gates.
void DelayedCompute::open_one() {
  if (const std::uint64_t gates = gates_; gates > 0) open_gates_.insert(1 + random_() % gates);
}

/// Draws a queue among those whose oldest piece of work may run, and runs this piece.
void DelayedCompute::run_one() {
  std::vector<Queue*> ready;
  for (Queue& queue : queues_) {
    if (!queue.waiting.empty() && may_run(queue.waiting.front())) ready.push_back(&queue);
  }
  if (ready.empty()) return;
  Queue& queue = *ready[random_() % ready.size()];
  run(queue.waiting.front());
  queue.waiting.pop_front();
  ++queue.completed;
}

void DelayedCompute::run(Piece& piece) {
  if (piece.is_cancelled || !health()) return;
  ++done_;
  auto& work = piece.work;
  std::byte* const target = memory_.seen_by_device(work.target);
  for (const void*& source : piece.sources) source = memory_.seen_by_device(source);
  const std::uint64_t count = work.bytes / work.element_bytes;
  switch (work.kind) {
    case execution::ComputeWork::Kind::copy:
      std::memmove(target, piece.sources[0], work.bytes);
      break;
    case execution::ComputeWork::Kind::reduce:
      work.reduce(target, piece.sources.data(), piece.sources.size(), count, work.finish);
      break;
    case execution::ComputeWork::Kind::scale:
      work.scale(target, piece.sources[0], count, work.factor);
      break;
  }
}

void DelayedCompute::cancel(Ticket ticket) noexcept {
  Queue& queue = queues_[ticket.queue];
  if (ticket.number <= queue.completed) return;
  queue.waiting[ticket.number - queue.completed - 1].is_cancelled = true;
}

void DelayedCompute::open(Ticket gate) noexcept {
  if (gate.queue == options_.queues) {
    open_gates_.insert(gate.number);
  } else {
    ++ends_opened_;
  }
}

void DelayedCompute::forget(Ticket gate) noexcept {
  const bool is_first = forgotten_.insert(gate.number).second;
  XYLEM_CHECK(is_first, gate.number);
}

Status DelayedCompute::health() const {
  if (options_.fault_after == 0 || done_ < options_.fault_after) return {};
  return failure(Code::internal, "the made-up device has a fault");
}

}  // namespace xylem::test
