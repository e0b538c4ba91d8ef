// SPDX-License-Identifier: Apache-2.0
//
// Helpers for tests of transports: operations that count their ends, buffers with a pattern, and
// functions that make progress until a condition holds or a deadline passes.
#pragma once

#include "xylem/base/clock.h"
#include "xylem/base/hash.h"
#include "xylem/transport/transport.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <vector>

namespace xylem::transport::testing {

/// An operation that records how often it ended, and whether it ended within the call that posted
/// it.
struct Tracked : Operation {
  Tracked() {
    done = [](Operation& self) noexcept {
      auto& tracked = static_cast<Tracked&>(self);
      ++tracked.ends;
      tracked.ended_in_post = tracked.ended_in_post || tracked.posting;
    };
  }
  bool ended() const { return ends > 0; }

  int ends = 0;
  bool posting = false;
  bool ended_in_post = false;
};

/// True if all arguments have ended. An argument is an operation or a range of operations.
bool ended(const auto&... operations) {
  const auto one = [](const auto& operation) {
    if constexpr (requires { operation.ended(); }) {
      return operation.ended();
    } else {
      return std::ranges::all_of(operation, [](const Tracked& each) { return each.ended(); });
    }
  };
  return (one(operations) && ...);
}

inline void send(Transport& from,
                 EndpointId to,
                 Tag tag,
                 const void* data,
                 std::uint64_t bytes,
                 Tracked& operation) {
  operation.posting = true;
  if (from.send(to, tag, {data, bytes, {}}, operation) == Posted::done) ++operation.ends;
  operation.posting = false;
}

inline void recv(Transport& at,
                 Tag tag,
                 void* data,
                 std::uint64_t bytes,
                 Tracked& operation,
                 Tag mask = kExactMatch,
                 Tag* sender_tag = nullptr) {
  operation.posting = true;
  if (at.recv(tag, mask, {data, bytes, {}}, operation, sender_tag) == Posted::done) {
    ++operation.ends;
  }
  operation.posting = false;
}

inline constexpr std::chrono::seconds kPatience{20};

/// Calls progress() of all transports until `condition` returns true. Returns false if `patience`
/// passes first.
template <typename Condition>
bool drive(std::initializer_list<Transport*> transports,
           Condition condition,
           Clock::duration patience = kPatience) {
  const auto deadline = Deadline::after(patience);
  while (!condition()) {
    for (Transport* transport : transports) transport->progress();
    if (deadline.passed()) return condition();
  }
  return true;
}

/// Calls progress() so often that all effects of earlier calls have happened.
inline void settle(std::initializer_list<Transport*> transports) {
  for (int i = 0; i < 2000; ++i) {
    for (Transport* transport : transports) transport->progress();
  }
}

/// Bytes that depend on position and seed.
inline std::vector<std::byte> pattern(std::size_t bytes, std::uint64_t seed) {
  std::vector<std::byte> data(bytes);
  for (std::size_t at = 0; at < bytes; at += sizeof(std::uint64_t)) {
    const std::uint64_t word = combine(seed, at);
    std::memcpy(data.data() + at, &word, std::min(sizeof word, bytes - at));
  }
  return data;
}

/// Like operator== of the vectors, but with one memcmp(). The operator compares byte by byte, which
/// takes most of the time of large tests under the thread sanitizer.
inline bool same(const std::vector<std::byte>& one, const std::vector<std::byte>& other) {
  return one.size() == other.size() && std::memcmp(one.data(), other.data(), one.size()) == 0;
}

}  // namespace xylem::transport::testing
