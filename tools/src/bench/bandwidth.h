// SPDX-License-Identifier: Apache-2.0
//
// Computes bandwidths from bytes and time. algbw is the size of a row divided by its time. busbw is
// algbw times a factor that makes it independent of the number of ranks, so that it can be compared
// with the bandwidth of the hardware.
//
// The factors are those of nccl-tests: from doc/PERFORMANCE.md, except for gather and scatter,
// which follow src/gather.cu and src/scatter.cu (the root's own part does not leave the root).
#pragma once

#include "bench/operation.h"
#include "xylem/base/quantity.h"

#include <cstdint>

namespace xylem::tools {

/// busbw / algbw. For a single rank, a factor that counts the shares of the other ranks is 0.
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
    case Operation::send_recv:
    case Operation::exchange:
    case Operation::ping_pong: return 1;
    case Operation::barrier: return 0;
  }
  return 0;
}

/// The least number of bytes that all ranks of one host together must read and write in memory for
/// one call, divided by the size of the row: every input is read once, and every output is written
/// once, except parts that are already in place. Data that passes through caches in between costs
/// no memory traffic. For ping_pong, the result is the traffic of one message, and not of the whole
/// call.
constexpr double least_traffic(Operation operation, std::uint32_t ranks, bool in_place) noexcept {
  const double n = ranks;
  if (in_place && ranks == 1) return 0;
  switch (operation) {
    case Operation::all_reduce:
    case Operation::send_recv:
    case Operation::exchange: return 2 * n;
    case Operation::ping_pong: return 2;
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

inline constexpr double kBytesPerMicrosecond = 1e3;  ///< 1 GB/s in bytes per microsecond.

/// The least time in microseconds for a call with this least_traffic(). `copied` is the bandwidth
/// at which all ranks at once copy memory with non-temporal stores; a copied byte is read once and
/// written once. 0 if `traffic` is 0.
constexpr double least_time(double traffic, Bytes size, GBps copied) noexcept {
  return traffic / 2 * static_cast<double>(size.value) / copied.value / kBytesPerMicrosecond;
}

/// algbw. It is 0 if the time is 0.
constexpr GBps algorithm_bandwidth(Bytes size, double microseconds) noexcept {
  return {microseconds > 0 ? static_cast<double>(size.value) / microseconds / kBytesPerMicrosecond
                           : 0.0};
}

}  // namespace xylem::tools
