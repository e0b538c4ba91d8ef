// SPDX-License-Identifier: Apache-2.0
#include "failure/mismatch.h"

#include <fmt/format.h>

#include <algorithm>

namespace xylem::runtime {
namespace {

using Mismatch = std::optional<std::string>;

/// For a call whose record this rank no longer keeps. Compares the hashes of all calls up to this
/// one, which shows only that some call differed.
Mismatch compare_hashes(const CallHistory& history,
                        const GroupSpec& group,
                        std::uint32_t origin,
                        const CallRecord& theirs) {
  const auto hash = history.hash_at(theirs.sequence);
  if (!hash || *hash == theirs.history) return std::nullopt;
  return fmt::format(
      "{} of {}: rank {} calls {}; rank {} called something else then or before, and is at {} by "
      "now, too far ahead to say what",
      history.name_of(theirs.sequence), group.label(), origin, describe(theirs),
      group.own_world_rank(), history.name_of(history.next_sequence()));
}

Mismatch compare_records(const CallHistory& history,
                         const GroupSpec& group,
                         std::uint32_t origin,
                         const CallRecord& theirs) {
  if (theirs.sequence >= history.next_sequence()) return std::nullopt;
  const CallRecord& mine = history.record(theirs.sequence);
  if (mine.sequence != theirs.sequence) return compare_hashes(history, group, origin, theirs);
  // The fingerprint of an all_to_all_v does not contain the kind of memory.
  const bool is_agreed = mine.agreement == theirs.agreement || mine.agreement == Agreement::none ||
                         theirs.agreement == Agreement::none;
  if (mine.fingerprint == theirs.fingerprint && is_agreed) return std::nullopt;
  const std::uint32_t rank = group.own_world_rank();
  return fmt::format("{} of {}: rank {} calls {}, rank {} calls {}",
                     history.name_of(theirs.sequence), group.label(), std::min(rank, origin),
                     describe(rank < origin ? mine : theirs), std::max(rank, origin),
                     describe(rank < origin ? theirs : mine));
}

/// In an all_to_all_v, compares the number of bytes that the rank `origin` expects from this rank
/// with the number that this rank sends to it.
Mismatch compare_sizes(const CallHistory& history,
                       const GroupSpec& group,
                       std::uint32_t origin,
                       const Situation& theirs) {
  const auto origin_rank = group.rank_of(origin);
  const bool waits_for_this =
      theirs.state == Situation::State::waiting && theirs.blocked_on == group.rank;
  if (!waits_for_this || !origin_rank) return std::nullopt;
  // On a mesh, this rank waits for the end of the call (Operation::check_mesh()).
  if (history.record(theirs.sequence).agreement == Agreement::on_mesh) return std::nullopt;
  const auto count = history.sent_to(theirs.sequence, *origin_rank);
  if (!count) return std::nullopt;
  const std::uint64_t bytes = *count * size_of(history.record(theirs.sequence).type);
  if (bytes == theirs.blocked_bytes) return std::nullopt;
  return fmt::format(
      "{} of {}: in an all_to_all_v rank {} sends {} bytes to rank {}, which expects {}",
      history.name_of(theirs.sequence), group.label(), group.own_world_rank(), bytes, origin,
      theirs.blocked_bytes);
}

}  // namespace

std::optional<std::string> find_mismatch(const CallHistory& history,
                                         const GroupSpec& group,
                                         std::uint32_t origin,
                                         const Situation& theirs) {
  for (const CallRecord& record : theirs.records) {
    if (auto difference = compare_records(history, group, origin, record)) return difference;
  }
  return compare_sizes(history, group, origin, theirs);
}

}  // namespace xylem::runtime
