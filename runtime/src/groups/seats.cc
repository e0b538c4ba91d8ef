// SPDX-License-Identifier: Apache-2.0
#include "groups/seats.h"

#include "xylem/execution/tag.h"

#include <fmt/format.h>

#include <chrono>
#include <thread>
#include <utility>

namespace xylem {
namespace runtime {
namespace {

/// How long a rank waits for a free seat. Seats of poisoned communicators become free after two
/// seconds (registry.h).
constexpr std::chrono::seconds kLongestWait{5};
constexpr std::chrono::milliseconds kWait{50};

}  // namespace

Result<Seat> Seats::take(const std::shared_ptr<Context>& context) {
  const Deadline deadline = Deadline::after(kLongestWait);
  Registry& registry = context->registry;
  for (;;) {
    XYLEM_TRY(context->process.check());
    const bool may_come_free = registry.is_draining();
    if (const auto slot = registry.claim_slot()) return Seat(context, *slot);
    if (!may_come_free || deadline.passed()) break;
    std::this_thread::sleep_for(kWait);
  }
  return failure(Code::exhausted,
                 fmt::format("rank {} has {} communicators already, and cannot make another; "
                             "destroy those that are not in use",
                             context->rank(), execution::kMaxGroups),
                 context->rank());
}

}  // namespace runtime

Seat& Seat::operator=(Seat&& other) noexcept {
  if (this != &other) {
    give_back();
    context_ = std::move(other.context_);
    number_ = other.number_;
  }
  return *this;
}

Seat::~Seat() { give_back(); }

void Seat::give_back() noexcept {
  const auto context = std::exchange(context_, nullptr);
  if (context == nullptr || !context->process.allows()) return;
  context->progress.with_token(
      [&](runtime::Token token) { context->registry.abandon(token, number_); });
  context->thread.wake();
}

}  // namespace xylem
