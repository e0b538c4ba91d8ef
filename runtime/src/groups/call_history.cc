// SPDX-License-Identifier: Apache-2.0
#include "groups/call_history.h"

#include "xylem/base/hash.h"

#include <fmt/format.h>

namespace xylem::runtime {
namespace {

constexpr std::size_t kRememberedCounts = 4;

}  // namespace

const CallRecord& CallHistory::add(const CallRecord& call, std::uint64_t label) {
  CallRecord& record = records_[sequence_ % kRecords];
  if (sequence_ >= kRecords) {
    if (hashes_.empty()) hashes_.resize(kHistories);
    hashes_[record.sequence % kHistories] = record.history;
  }
  record = call;
  if (label != 0) {
    record.label = label;
    record.fingerprint = combine(record.fingerprint, label);
  }
  record.sequence = sequence_++;
  hash_ = record.history = combine(hash_, record.fingerprint);
  return record;
}

void CallHistory::remember_counts(std::uint64_t sequence,
                                  const std::vector<std::uint64_t>& counts) {
  sent_counts_.emplace_front(sequence, counts);
  if (sent_counts_.size() > kRememberedCounts) sent_counts_.pop_back();
}

std::optional<std::uint64_t> CallHistory::hash_at(std::uint64_t sequence) const noexcept {
  if (sequence >= sequence_) return std::nullopt;
  if (sequence + kRecords >= sequence_) return record(sequence).history;
  if (sequence + kRecords + kHistories < sequence_) return std::nullopt;
  return hashes_[sequence % kHistories];
}

std::optional<std::uint64_t> CallHistory::sent_to(std::uint64_t sequence,
                                                  std::uint32_t rank) const noexcept {
  for (const auto& [number, counts] : sent_counts_) {
    if (number == sequence) return counts[rank];
  }
  return std::nullopt;
}

std::string CallHistory::name_of(std::uint64_t sequence) const {
  if (is_of_start(sequence)) return "a call of the start";
  return fmt::format("call {}", sequence - first_user_call_ + 1);
}

}  // namespace xylem::runtime
