// SPDX-License-Identifier: Apache-2.0
#include "xylem/runtime/seat.h"

#include "context.h"

#include <utility>

namespace xylem {

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
  context->progress.with_token([&] { context->registry.give_up(number_); });
  context->keeper.wake();
}

}  // namespace xylem
