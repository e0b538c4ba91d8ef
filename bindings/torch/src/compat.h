// SPDX-License-Identifier: Apache-2.0
//
// The differences between the versions of torch, from 2.7 on. The code checks whether torch's
// headers have a feature; it does not check the version number.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <type_traits>
#include <vector>

namespace xylem::pytorch {

// Our class Backend declares the following members without `override`, since the base class of
// older versions of torch lacks them. If the base class has them, their types must be equal:
// otherwise torch would never call the members of our class.

/// Whether the base class has split().
template <typename Base>
constexpr bool has_split() {
  if constexpr (requires { &Base::split; }) {
    using Split = c10::intrusive_ptr<Base> (Base::*)(
        const c10::intrusive_ptr<c10d::Store>&, const std::vector<int>&,
        const c10::intrusive_ptr<typename Base::Options>&);
    static_assert(std::is_same_v<decltype(&Base::split), Split>);
    return true;
  } else {
    return false;
  }
}

template <typename Base>
constexpr bool overrides_match() {
  if constexpr (requires { &Base::getBackendOptions; }) {
    using Get = c10::intrusive_ptr<typename Base::Options> (Base::*)();
    static_assert(std::is_same_v<decltype(&Base::getBackendOptions), Get>);
  }
  if constexpr (requires { &Base::setTimeout; }) {
    static_assert(
        std::is_same_v<decltype(&Base::setTimeout), void (Base::*)(std::chrono::milliseconds)>);
  }
  if constexpr (requires { &Base::gather_single; }) {
    using Gather = c10::intrusive_ptr<c10d::Work> (Base::*)(at::Tensor&, at::Tensor&,
                                                            const c10d::GatherOptions&);
    static_assert(std::is_same_v<decltype(&Base::gather_single), Gather>);
  }
  return true;
}
static_assert(overrides_match<c10d::Backend>());

template <typename OpType>
constexpr OpType reduce_scatter_coalesced_type() {
  if constexpr (requires { OpType::REDUCE_SCATTER_TENSOR_COALESCED; }) {
    return OpType::REDUCE_SCATTER_TENSOR_COALESCED;
  } else {
    return OpType::_REDUCE_SCATTER_BASE;
  }
}

template <typename OpType>
constexpr OpType all_gather_coalesced_type() {
  if constexpr (requires { OpType::ALLGATHER_INTO_TENSOR_COALESCED; }) {
    return OpType::ALLGATHER_INTO_TENSOR_COALESCED;
  } else {
    return OpType::_ALLGATHER_BASE;
  }
}

template <typename Options>
void set_group(Options& options,
               const std::string& name,
               const std::vector<std::uint64_t>& global_ranks) {
  if constexpr (requires { options.global_ranks_in_group = global_ranks; }) {
    options.group_name = name;
    options.global_ranks_in_group = global_ranks;
  }
}

template <typename Options>
std::string group_name(const Options& options) {
  if constexpr (requires { options.group_name; }) {
    return options.group_name;
  } else {
    return "";
  }
}

}  // namespace xylem::pytorch
