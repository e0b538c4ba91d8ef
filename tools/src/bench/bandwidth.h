// SPDX-License-Identifier: Apache-2.0
//
// From bytes and time to bandwidth. algbw is a row's size over its time; busbw is algbw times a
// factor that makes it independent of the number of ranks, so that it compares with what the wires
// can do.
//
// The factors are those of nccl-tests: doc/PERFORMANCE.md for all but gather and scatter, which
// follow src/gather.cu and src/scatter.cu (the root's own part crosses no wire).
#pragma once

#include "bench/operation.h"
#include "xylem/base/quantity.h"

#include <cstdint>

namespace xylem::tools {

/// busbw / algbw. A single rank moves nothing over a bus: 0 where the factor counts the other
/// ranks' shares.
constexpr double bus_factor(Operation operation, std::uint32_t ranks) noexcept {
  const double n = ranks;
  const double others = (n - 1) / n;
  switch (operation) {
    case Operation::all_reduce: return 2 * others;
    case Operation::all_gather:
    case Operation::all_gather_v:
    case Operation::reduce_scatter:
    case Operation::reduce_scatter_v:
    case Operation::all_to_all:
    case Operation::all_to_all_v:
    case Operation::gather:
    case Operation::scatter: return others;
    case Operation::reduce:
    case Operation::broadcast:
    case Operation::send_recv: return 1;
    case Operation::barrier: return 0;
  }
  return 0;
}

/// Bytes read and written in the memory of one host by one call, of all its ranks together and over
/// the row's size: at the least every input is read once and every output written once, but what is
/// in its place already; whatever passes through caches in between costs no memory traffic.
constexpr double least_traffic(Operation operation, std::uint32_t ranks, bool in_place) noexcept {
  const double n = ranks;
  if (in_place && ranks == 1) return 0;
  switch (operation) {
    case Operation::all_reduce:
    case Operation::send_recv: return 2 * n;
    case Operation::all_to_all:
    case Operation::all_to_all_v: return in_place ? 2 * (n - 1) : 2 * n;
    case Operation::reduce:
    case Operation::reduce_scatter:
    case Operation::reduce_scatter_v: return n + 1;
    case Operation::broadcast:
    case Operation::all_gather:
    case Operation::all_gather_v: return in_place ? n : n + 1;
    case Operation::gather:
    case Operation::scatter: return in_place ? 2 * (n - 1) / n : 2;
    case Operation::barrier: return 0;
  }
  return 0;
}

inline constexpr double kBytesPerMicrosecond = 1e3;  ///< In one GB/s.

/// Microseconds that a call's least_traffic() takes where the ranks can copy so much, all at once
/// and past the caches: a copied byte is read once and written once. 0 where nothing is copied.
constexpr double least_time(double traffic, Bytes size, GBps copied) noexcept {
  return traffic / 2 * static_cast<double>(size.value) / copied.value / kBytesPerMicrosecond;
}

/// 0 for no time.
constexpr GBps algorithm_bandwidth(Bytes size, double microseconds) noexcept {
  return {microseconds > 0 ? static_cast<double>(size.value) / microseconds / kBytesPerMicrosecond
                           : 0.0};
}

}  // namespace xylem::tools
