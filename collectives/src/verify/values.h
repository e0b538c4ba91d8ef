// SPDX-License-Identifier: Apache-2.0
//
// Symbolic execution: the content of each chunk as an expression over the inputs of the ranks.
// Equal expressions have the same number, so comparing expressions means comparing numbers. The
// claims are those of verify.h.
#pragma once

#include "verify/memory.h"

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

namespace xylem::collectives::verifier {

/// An expression over inputs in which all ranks are renamed by `shift` (symmetry.h). Two Values
/// compare equal exactly if the renamed expressions are the same.
struct Value {
  std::uint32_t expression = 0;  ///< 0 means never written.
  std::uint32_t shift = 0;

  friend bool operator==(const Value&, const Value&) = default;
};
inline constexpr Value kUnwritten;

/// All expressions of one proof; expressions that differ only by a renaming are stored once. Blocks
/// need not be distinguished, since the form check has shown that no step mixes them.
class Expressions {
 public:
  explicit Expressions(Symmetry group);

  Value input_of(std::uint32_t rank) const;
  /// The reduction of `sources` from left to right. None if two sources contain the input of the
  /// same rank; common_contributor() then returns this rank.
  std::optional<Value> reduce(std::span<const Value> sources, bool finish);
  std::uint32_t common_contributor() const { return common_; }
  Value moved(Value value, std::uint32_t shift) const;
  bool is_finished(Value value) const { return finished_[value.expression]; }
  /// The number of ranks whose input is in the value, each exactly once.
  std::uint32_t contributors(Value value) const { return counts_[value.expression]; }

 private:
  using Word = std::uint64_t;
  struct Key {
    std::vector<Value> sources;  // The first source always has shift 0.
    bool finish;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const noexcept;
  };

  std::span<Word> set_of(std::uint32_t expression) {
    return std::span(sets_).subspan(expression * words_, words_);
  }
  std::uint32_t add(bool finished, std::uint32_t count);
  bool add_contributors(std::uint32_t expression, Value source);

  Symmetry group_;
  std::size_t words_;       // Number of words in one set of contributors.
  std::vector<Word> sets_;  // For each expression, the set of its contributors: see set_of().
  std::vector<std::uint32_t> counts_;
  std::vector<bool> finished_;
  std::uint32_t common_ = 0;
  Key key_;  // The key of the current reduction.
  std::unordered_map<Key, std::uint32_t, Hash> known_;
};

/// Symbolic execution: runs the schedules of all ranks with expressions in place of data.
class Execution {
 public:
  Execution(const World& world, const Locations& locations);

  /// Checks the part of claim 3 that concerns the steps: they read only written chunks, no
  /// contribution counts twice, and exactly the reduction that completes a sum finishes it.
  /// Requires claim 1.
  Status run(std::span<const Global> order);
  /// Checks the part of claim 3 that concerns the final contents of the outputs.
  Status check_outputs() const;
  /// Checks claim 2: under the aliasing of `locations`, every step produces the same values as in
  /// run().
  Status repeat(std::span<const Global> order, const Locations& locations);

 private:
  void fill_inputs();
  Status execute(Global id);
  Status reduce(Global id, std::uint32_t index, Value& result);
  Value load(const Operand& operand, std::uint32_t index) const;
  Value received(Global id, std::uint32_t index) const;
  Status check_alike(std::uint32_t chunk) const;
  Status check_output(std::uint32_t rank, std::uint32_t chunk, Value first_rank_value) const;
  Status reject(Global id, std::string_view rule) const;

  const World& world_;
  const Locations* locations_;
  Expressions expressions_;
  std::vector<Value> memory_;              // The content of each location.
  std::vector<Value> seen_;                // The values that steps produced or sent.
  std::vector<std::uint32_t> first_seen_;  // For each step, the index of its first value in seen_.
  std::vector<Value> sources_;             // The sources of the current reduction.
};

}  // namespace xylem::collectives::verifier
