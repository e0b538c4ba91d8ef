// SPDX-License-Identifier: Apache-2.0
#include "failure/failure_detector.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

namespace xylem::runtime {
namespace {

/// How long the control plane may take to report a death after a wire has failed.
constexpr std::chrono::milliseconds kSuspicion{500};
/// The same if the peer has closed the wire: then it has died or has left, so a report is on its
/// way. On hosts that are overloaded, it may arrive late.
constexpr std::chrono::milliseconds kClosed{3000};

bool is_due(const Suspicion& suspicion, Clock::time_point now) {
  const bool is_closed =
      suspicion.why.code() == Code::peer_lost && suspicion.leaver == Suspicion::Leaver::is_excused;
  return now - suspicion.since >= (is_closed ? kClosed : kSuspicion);
}

}  // namespace

void FailureDetector::suspect(Token /*token*/,
                              std::weak_ptr<Group> group,
                              Status why,
                              Suspicion::Leaver leaver) {
  suspicions_.push_back({std::move(group), std::move(why), leaver, Clock::now()});
  has_suspicions_ = true;
}

std::vector<Suspicion> FailureDetector::take_confirmed(Token token, Clock::time_point now) {
  std::vector<Suspicion> confirmed;
  std::erase_if(suspicions_, [&](Suspicion& suspicion) {
    const auto culprit = suspicion.why.peer();
    const bool left = culprit && has_left(token, *culprit);
    if (left && suspicion.leaver == Suspicion::Leaver::is_excused) return true;
    if (!is_due(suspicion, now)) return false;
    if (left) {
      suspicion.why = failure(Code::peer_lost,
                              fmt::format("rank {} left the job before it took its part: {}",
                                          *culprit, suspicion.why.message()),
                              culprit);
    }
    confirmed.push_back(std::move(suspicion));
    return true;
  });
  has_suspicions_ = !suspicions_.empty();
  return confirmed;
}

}  // namespace xylem::runtime
