// SPDX-License-Identifier: Apache-2.0
#include "failure/participation.h"

#include "xylem/base/rank_list.h"

#include <fmt/format.h>

#include <string_view>

namespace xylem::runtime {
namespace {

/// "; ranks 3, 4 left the job"; empty without ranks.
std::string clause(const std::vector<std::uint32_t>& ranks, std::string_view what) {
  if (ranks.empty()) return {};
  return fmt::format("; rank{} {} {}", ranks.size() == 1 ? "" : "s", rank_list(ranks), what);
}

}  // namespace

void Participation::add(std::uint32_t rank,
                        const std::optional<RollCall::Answer>& answer,
                        bool has_left_group,
                        const CallHistory& history) {
  if (has_left_group || (answer && answer->state == Situation::State::left)) {
    left_group.push_back(rank);
  } else if (!answer) {
    silent.push_back(rank);
  } else if (answer->state == Situation::State::waiting) {
    waiting.push_back(rank);
  } else if (answer->state == Situation::State::not_called) {
    absent.push_back(rank);
    const bool has_called = answer->last && !history.is_of_start(answer->last->sequence);
    last_calls += has_called ? fmt::format("; rank {}'s last call was {}, {}", rank,
                                           history.name_of(answer->last->sequence),
                                           runtime::describe(*answer->last))
                             : fmt::format("; rank {} has called nothing yet", rank);
  }
}

std::optional<std::uint32_t> Participation::culprit() const {
  if (silent.size() == 1) return silent.front();
  if (!silent.empty()) return std::nullopt;
  if (const auto leaver = only_leaver()) return leaver;
  if (left_job.empty() && left_group.empty() && absent.size() == 1) return absent.front();
  return std::nullopt;
}

std::optional<std::uint32_t> Participation::only_leaver() const {
  if (left_job.size() + left_group.size() != 1) return std::nullopt;
  return left_job.empty() ? left_group.front() : left_job.front();
}

std::string Participation::describe() const {
  return clause(absent, "did not call it") + last_calls + describe_silent() + describe_leavers() +
         clause(waiting, waiting.size() == 1 ? "waits too" : "wait too");
}

std::string Participation::describe_silent() const { return clause(silent, "gave no answer"); }

std::string Participation::describe_leavers() const {
  return clause(left_job, "left the job") + clause(left_group, "left the communicator");
}

}  // namespace xylem::runtime
