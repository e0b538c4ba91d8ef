// SPDX-License-Identifier: Apache-2.0
//
// gather_from_all: collects one value from each member of a group, and returns all values at each
// member.
#pragma once

#include "calls/calls.h"
#include "xylem/base/status.h"
#include "xylem/runtime/work.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace xylem::runtime {

/// Submits a call to a group (Group::submit()).
using Submit = std::function<Work(Call&&)>;

/// The values of all `size` members of a group, in the order of their ranks; `mine` is the value of
/// this member. Uses an all_gather of the group itself.
template <typename T>
Result<std::vector<T>> gather_from_all(const Submit& submit, std::uint32_t size, const T& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  // The last element of `all` is the input: the value of this member.
  const auto all = std::make_shared<std::vector<T>>(size + 1, mine);
  Call call;
  call.collective = collectives::Collective::all_gather;
  call.type = DataType::uint8;
  call.count = sizeof(T);
  call.input = &all->back();
  call.output = all->data();
  call.owned = all;
  XYLEM_TRY(submit(std::move(call)).wait());
  all->pop_back();
  return std::move(*all);
}

}  // namespace xylem::runtime
