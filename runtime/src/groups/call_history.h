// SPDX-License-Identifier: Apache-2.0
//
// CallHistory: numbers the collectives of a communicator, hashes all of them, and records the
// latest ones, so that verdicts can describe them. Only the token holder may use it.
#pragma once

#include "failure/situation.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace xylem::runtime {

class CallHistory {
 public:
  /// The number of latest calls whose CallRecord is kept, so that verdicts can describe them.
  static constexpr std::size_t kRecords = 64;
  /// The number of calls, before the latest kRecords calls, of which only the history hash is kept
  /// (hash_at()). A rank cannot be further ahead of the other ranks than this.
  static constexpr std::size_t kHistories = 8192;

  /// Starts the hash with the uid of the group.
  explicit CallHistory(std::uint64_t uid) noexcept : hash_(uid) {}

  /// Adds a call, and returns its record with its number, its label, and the hash of all calls so
  /// far. The reference is valid until the next call is added.
  const CallRecord& add(const CallRecord& call, std::uint64_t label);
  /// Stores the counts that this rank sends in an all_to_all_v. Only the counts of the last few
  /// such calls are kept.
  void remember_counts(std::uint64_t sequence, const std::vector<std::uint64_t>& counts);

  std::uint64_t next_sequence() const noexcept { return sequence_; }
  /// Precondition: the call is one of the last kRecords calls.
  const CallRecord& record(std::uint64_t sequence) const noexcept {
    return records_[sequence % kRecords];
  }
  /// The hash of all calls up to and including the call with this number. Empty if the hash is no
  /// longer kept, or if the call has not been added.
  std::optional<std::uint64_t> hash_at(std::uint64_t sequence) const noexcept;
  /// How many elements this rank sent to `rank` in the all_to_all_v with this number. Empty if the
  /// counts of this call are not kept.
  std::optional<std::uint64_t> sent_to(std::uint64_t sequence, std::uint32_t rank) const noexcept;

  /// Calls between begin_start() and begin_user_calls() are made by the runtime when the job
  /// starts. Error messages number only the calls of the user, from 1 on.
  void begin_start() noexcept { first_user_call_ = std::numeric_limits<std::uint64_t>::max(); }
  void begin_user_calls() noexcept { first_user_call_ = sequence_; }
  bool is_of_start(std::uint64_t sequence) const noexcept { return sequence < first_user_call_; }
  /// The name of a call in error messages.
  std::string name_of(std::uint64_t sequence) const;

 private:
  std::uint64_t sequence_ = 0;
  std::uint64_t first_user_call_ = 0;
  std::uint64_t hash_;
  std::array<CallRecord, kRecords> records_{};
  /// A ring buffer with the hashes of the calls whose records have been overwritten in `records_`.
  std::vector<std::uint64_t> hashes_;
  std::list<std::pair<std::uint64_t, std::vector<std::uint64_t>>> sent_counts_;
};

}  // namespace xylem::runtime
