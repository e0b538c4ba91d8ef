// SPDX-License-Identifier: Apache-2.0
//
// How the members of a group tell each other a value.
#pragma once

#include "groups/group.h"

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace xylem::runtime {

/// The values of all members, in the order of their ranks; `mine` is the value of this member. Uses
/// an all_gather of the group itself.
template <typename T>
Result<std::vector<T>> gather_from_all(Group& group, const T& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  // The last element of `all` is the input, which is this member's T.
  const auto all = std::make_shared<std::vector<T>>(group.size() + 1, mine);
  Call call;
  call.collective = collectives::Collective::all_gather;
  call.type = DataType::uint8;
  call.count = sizeof(T);
  call.input = &all->back();
  call.output = all->data();
  call.owned = all;
  XYLEM_TRY(group.submit(std::move(call)).wait());
  all->pop_back();
  return std::move(*all);
}

}  // namespace xylem::runtime
