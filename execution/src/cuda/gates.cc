// SPDX-License-Identifier: Apache-2.0
#include "cuda/gates.h"

#include <fmt/format.h>

namespace xylem::execution::cuda {

Gates::Gates(const Driver& driver, std::uint64_t* words, CUdeviceptr words_on_device)
    : driver_(driver), words_(words), words_on_device_(words_on_device) {
  free_.reserve(kMost);
  retired_.reserve(kMost);
}

Result<std::uint32_t> Gates::take() {
  const Lock lock(mutex_);
  std::erase_if(retired_, [this](std::uint32_t slot) XYLEM_LOCKING(requires_capability(mutex_)) {
    if (word(slot).load(std::memory_order_acquire) < generations_[slot]) return false;
    free_.push_back(slot);
    return true;
  });
  if (free_.empty()) {
    if (used_ == kMost) {
      return failure(Code::exhausted,
                     fmt::format("{} calls of this device wait for streams, or streams for calls; "
                                 "wait for some of them",
                                 kMost));
    }
    free_.push_back(used_++);
  }
  const std::uint32_t slot = free_.back();
  free_.pop_back();
  ++generations_[slot];
  return slot;
}

bool Gates::were_made() noexcept {
  const Lock lock(mutex_);
  return used_ > 0;
}

void Gates::give_back(std::uint32_t slot) noexcept {
  const Lock lock(mutex_);
  free_.push_back(slot);
}

/// Fails if the stream is being captured: a gate opens only once, but a graph can be launched many
/// times.
Status Gates::check_not_captured(CUstream stream) const {
  XYLEM_TRY(const auto capture, driver_.capture_of(stream));
  if (!capture) return {};
  return failure(Code::unsupported,
                 "the stream is being captured; only collectives of a communicator whose devices "
                 "form a mesh can be captured: bind the device before the capture (bind(), or "
                 "device_id of init_process_group)");
}

Result<Gates::ByWrite> Gates::by_write() {
  XYLEM_TRY(const std::uint32_t slot, take());
  const std::uint64_t generation = generations_[slot];
  return ByWrite{ticket(slot, generation), word_on_device(slot), generation};
}

void Gates::cancel(const ByWrite& gate) noexcept {
  const std::uint32_t slot = slot_of(gate.gate);
  word(slot).store(gate.value, std::memory_order_release);
  give_back(slot);
}

Result<Ticket> Gates::after(CUstream stream) {
  XYLEM_TRY(check_not_captured(stream));
  XYLEM_TRY(const ByWrite made, by_write());
  const CUresult written = driver_.cuStreamWriteValue64(stream, made.word, made.value, 0);
  if (written == CUDA_SUCCESS) return made.gate;
  cancel(made);
  return driver_.check(written, "cuStreamWriteValue64");
}

Result<Ticket> Gates::before(CUstream stream) {
  XYLEM_TRY(check_not_captured(stream));
  XYLEM_TRY(const ByWrite made, by_write());
  begin_to_wait();
  const CUresult result =
      driver_.cuStreamWaitValue64(stream, made.word, made.value, CU_STREAM_WAIT_VALUE_GEQ);
  if (result == CUDA_SUCCESS) return made.gate;
  --waited_for;
  cancel(made);
  return driver_.check(result, "cuStreamWaitValue64");
}

bool Gates::is_open(Ticket gate) const noexcept {
  return word(slot_of(gate)).load(std::memory_order_acquire) >= generation_of(gate);
}

void Gates::open(Ticket gate) noexcept {
  --waited_for;
  word(slot_of(gate)).store(generation_of(gate), std::memory_order_release);
  give_back(slot_of(gate));
}

void Gates::forget(Ticket gate) noexcept {
  const Lock lock(mutex_);
  retired_.push_back(slot_of(gate));
}

}  // namespace xylem::execution::cuda
