// SPDX-License-Identifier: Apache-2.0
#include "failure/failure_detector.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

namespace xylem::runtime {
namespace {

/// How long the control plane may take to report a death after a wire has failed.
constexpr std::chrono::milliseconds kSuspicion{500};

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
    if (now - suspicion.since < kSuspicion) return false;
    const auto culprit = suspicion.why.peer();
    if (culprit && has_left(token, *culprit)) {
      if (suspicion.leaver == Suspicion::Leaver::is_excused) return true;
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
