// SPDX-License-Identifier: Apache-2.0
//
// What differs between the versions of torch, from 2.7 on. Whether a version has something is asked
// of its headers, not of its number.
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

// Our class has these members without `override`, since older versions lack them. Where the base
// class has them, they must be the same functions, or nothing would call ours.

/// Whether it has split().
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

/// A connection of one's own, where torch has such: waiting on a store keeps others from using it.
template <typename Store>
c10::intrusive_ptr<Store> own_connection(const c10::intrusive_ptr<Store>& store) {
  if constexpr (requires { store->clone(); }) {
    return store->clone();
  } else {
    return store;
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
