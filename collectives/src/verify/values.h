// SPDX-License-Identifier: Apache-2.0
//
// Symbolic execution: what each chunk holds, as an expression over the ranks' inputs. Equal
// expressions have one number, so comparing them is comparing numbers.
#pragma once

#include "verify/memory.h"

#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <vector>

namespace xylem::collectives::verifier {

/// 0: never written. r + 1: the input of rank r. Beyond: reductions.
using Value = std::uint32_t;
inline constexpr Value kUnwritten = 0;

/// All expressions of one proof. Blocks need not be told apart: form has shown that no step mixes
/// them.
class Expressions {
 public:
  explicit Expressions(std::uint32_t ranks);

  Value input_of(std::uint32_t rank) const { return rank + 1; }
  /// The reduction of `sources` from left to right. Precondition: they are disjoint.
  Value reduce(std::span<const Value> sources, bool finish);
  bool is_finished(Value value) const { return finished_[value]; }
  /// Number of ranks whose input is in it; each is once.
  std::uint32_t contributors(Value value) const { return counts_[value]; }
  /// A rank that contributes to two of the values; kNone if there is none.
  std::uint32_t common_contributor(std::span<const Value> values);

 private:
  using Word = std::uint64_t;
  std::span<Word> set_of(Value value) { return std::span(sets_).subspan(value * words_, words_); }
  Value add(bool finished, std::uint32_t count);

  std::size_t words_;       // Per set of contributors.
  std::vector<Word> sets_;  // By value.
  std::vector<std::uint32_t> counts_;
  std::vector<bool> finished_;
  std::vector<Word> scratch_;
  struct Key {
    std::vector<Value> sources;
    bool finish;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const noexcept;
  };
  std::unordered_map<Key, Value, Hash> known_;
};

/// Runs all ranks' schedules on expressions.
class Execution {
 public:
  Execution(const World& world, const Locations& locations);

  /// Claim 3 on the way: reads of what was written, disjoint contributions, finishing in time.
  /// Needs claim 1.
  Status run(std::span<const Global> order);
  /// Claim 3 at the end: what the outputs hold.
  Status check_outputs() const;
  /// Claim 2: under other aliases every step sees what it saw in run().
  Status repeat(std::span<const Global> order, const Locations& locations);

 private:
  void fill_inputs();
  Status execute(Global id);
  Status reduce(Global id, std::uint32_t index, Value& result);
  Value load(const Operand& operand, std::uint32_t index) const;
  Status check_output(std::uint32_t rank, std::uint32_t chunk, Value first_rank_value) const;
  Status reject(Global id, std::string_view rule) const;

  const World& world_;
  const Locations* locations_;
  Expressions expressions_;
  std::vector<Value> memory_;              // By location.
  std::vector<Value> seen_;                // What steps produced or sent, step after step.
  std::vector<std::uint32_t> first_seen_;  // By step, into seen_.
  std::vector<Value> sources_;             // Of the reduction at hand.
};

}  // namespace xylem::collectives::verifier
