// SPDX-License-Identifier: Apache-2.0
//
// Communicator: an ordered set of ranks with a message space of its own, and the operations on it.
//
// Every operation is asynchronous and returns a Work; `comm.all_reduce(…).wait()` blocks. All ranks
// call collectives on one communicator in the same order, with the same operation, element type,
// counts, reduction and root. Where they do not, every rank gets `mismatch` naming both sides and
// no output is corrupted. A bad argument comes back as an ended Work.
#pragma once

#include "xylem/base/api.h"
#include "xylem/base/status.h"
#include "xylem/runtime/types.h"
#include "xylem/runtime/work.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace xylem {

namespace runtime {
class Group;
}

/// How one collective call would be (or was) carried out; the same on all ranks.
struct PlanInfo {
  std::string algorithm;
  double predicted_us = 0;
  std::string runner_up;  ///< Empty where there is no other.
  double runner_up_us = 0;
  std::string reason;
};

/// What an empty handle answers for a rank.
inline constexpr std::uint32_t kNoRank = UINT32_MAX;

/// Handle to a communicator; copies share it. Calls from several threads are allowed; their order
/// must agree across ranks.
///
/// Buffers: `count` is in elements; out of place, input and output must not overlap; in place is as
/// stated at each call. n is size(). The caller keeps buffers alive and untouched until the Work
/// has ended.
///
/// A handle may be empty: by default, on a rank that takes no part in a split, after destroy(), and
/// the world's after shutdown. Its size is 0, its numbers are kNoRank, and every call on it
/// comes back at once with `invalid_argument`, but for destroy().
class XYLEM_API Communicator {
 public:
  Communicator() noexcept = default;

  std::uint32_t rank() const noexcept;
  std::uint32_t size() const noexcept;
  /// Number of this communicator in logs and verdicts.
  std::uint32_t id() const noexcept;
  /// The rank in the job of a rank of this communicator; kNoRank if it has no such rank.
  std::uint32_t world_rank(std::uint32_t rank) const noexcept;

  /// output[i] = op over ranks of input[i]. In place: output.data == input.data.
  Work all_reduce(ConstBuffer input, Buffer output, ReduceOp op = RedOp::sum) const;
  /// The same at `root` only; other ranks' `output` is ignored.
  Work reduce(ConstBuffer input, Buffer output, ReduceOp op, std::uint32_t root) const;
  /// Every rank's `output` = root's `input`; other ranks' `input` is ignored. In place: equal
  /// addresses.
  Work broadcast(ConstBuffer input, Buffer output, std::uint32_t root) const;
  /// In place on all ranks.
  Work broadcast(Buffer buffer, std::uint32_t root) const {
    return broadcast(buffer, buffer, root);
  }

  /// output = the ranks' inputs in rank order: output.count = n · input.count. In place: input =
  /// output + rank · input.count.
  Work all_gather(ConstBuffer input, Buffer output) const;
  /// Rank i gives counts[i] elements; `counts` is alike on all ranks and may be freed at once.
  Work all_gather_v(ConstBuffer input, Buffer output, std::span<const std::uint64_t> counts) const;

  /// Rank i's output = part i of the reduced inputs: input.count = n · output.count. In place:
  /// output = input + rank · output.count.
  Work reduce_scatter(ConstBuffer input, Buffer output, ReduceOp op = RedOp::sum) const;
  /// Rank i gets counts[i] elements.
  Work reduce_scatter_v(ConstBuffer input,
                        Buffer output,
                        std::span<const std::uint64_t> counts,
                        ReduceOp op = RedOp::sum) const;

  /// Part i of rank j's output = part j of rank i's input; all parts are of equal count. In place:
  /// equal addresses (costs a copy).
  Work all_to_all(ConstBuffer input, Buffer output) const;
  /// Sends send_counts[i] elements to rank i and gets recv_counts[i] from it, packed in rank order.
  /// Out of place only.
  Work all_to_all_v(ConstBuffer input,
                    std::span<const std::uint64_t> send_counts,
                    Buffer output,
                    std::span<const std::uint64_t> recv_counts) const;

  /// Root's output = the ranks' inputs in rank order. In place at the root: input = output + root ·
  /// input.count.
  Work gather(ConstBuffer input, Buffer output, std::uint32_t root) const;
  /// Rank i's output = part i of root's input. In place at the root: output = input + root ·
  /// output.count.
  Work scatter(ConstBuffer input, Buffer output, std::uint32_t root) const;

  /// Ends on no rank before it has begun on all.
  Work barrier() const;

  /// Point to point. A message goes to the receive of the same (source, tag) in the order sent and
  /// received; count and type must agree, or both ends get `mismatch`. A send ends when its buffer
  /// may be reused, which may be before the receive is called. tag < 2^32. `recv` without a source
  /// takes the first message of the tag from any rank; Work::source() says whose.
  Work send(ConstBuffer buffer, std::uint32_t to, std::uint32_t tag = 0) const;
  Work recv(Buffer buffer, std::optional<std::uint32_t> from, std::uint32_t tag = 0) const;

  /// Splits by color: ranks of equal color form a communicator, ordered by (key, rank). Collective;
  /// blocks. `color` < 0: takes part in none, and gets an empty communicator.
  Result<Communicator> split(std::int32_t color, std::int32_t key) const;
  /// A communicator of the same ranks. Collective; blocks.
  Result<Communicator> duplicate() const { return split(0, static_cast<std::int32_t>(rank())); }
  /// Ends this communicator here; not collective. `busy` while operations are pending. OK on an
  /// empty one.
  Status destroy();
  /// Ends every pending operation on all ranks with `cancelled` and poisons the communicator.
  /// Returns within a second.
  Status abort(std::string_view why);

  /// How a call of this shape is carried out: `count` as in collectives' Counts (one rank's share).
  /// `root` 0 where there is none.
  Result<PlanInfo> plan_info(std::string_view collective,
                             std::uint64_t count,
                             DataType type,
                             std::uint32_t root = 0) const;

  explicit operator bool() const noexcept { return group_ != nullptr; }

 private:
  friend class Runtime;
  explicit Communicator(std::shared_ptr<runtime::Group> group) noexcept
      : group_(std::move(group)) {}
  std::shared_ptr<runtime::Group> group_;
};

}  // namespace xylem
