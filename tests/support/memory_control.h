// SPDX-License-Identifier: Apache-2.0
//
// A control plane in memory, for ranks that are threads of a test: the same contract as the one
// over TCP, and a test can kill a rank.
#pragma once

#include "runtime/src/bootstrap/control_plane.h"
#include "xylem/base/unique_fd.h"

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace xylem::test {

/// What the ranks of one test job share.
class MemoryHub : public std::enable_shared_from_this<MemoryHub> {
 public:
  explicit MemoryHub(std::uint32_t size);
  std::unique_ptr<runtime::ControlPlane> attach(std::uint32_t rank);
  /// From now on all others hear that the rank was lost.
  void kill(std::uint32_t rank);
  /// All others hear that the rank said goodbye.
  void part(std::uint32_t rank);
  /// Ends the connection of two ranks that have met, as something between them may. False if they
  /// have not met.
  bool cut(std::uint32_t a, std::uint32_t b);
  /// From now on neither hears the other's host.
  bool silence(std::uint32_t a, std::uint32_t b);
  /// How many messages ranks have flooded.
  std::uint64_t floods();

 private:
  friend class MemoryControl;
  struct News {
    enum class Kind : std::uint8_t { message, lost, left, met } kind = Kind::message;
    std::uint32_t rank = 0;
    std::vector<std::byte> bytes;
    runtime::Encounter encounter{};
  };
  struct Round {
    std::vector<std::vector<std::byte>> values;
    std::uint32_t arrived = 0;
  };

  void tell_others(std::uint32_t rank, News::Kind kind, std::span<const std::byte> bytes);
  void tell(std::uint32_t rank, News news);  // with the mutex held
  /// Connects two ranks, once.
  void introduce(std::uint32_t a, std::uint32_t b);

  const std::uint32_t size_;
  std::mutex mutex_;
  std::condition_variable arrival_;
  std::map<std::uint64_t, Round> rounds_;
  std::vector<std::uint64_t> next_round_;
  std::vector<std::vector<News>> inbox_;
  std::uint64_t floods_ = 0;
  /// A copy of one end of each connection, by its two ranks, the smaller first.
  std::map<std::pair<std::uint32_t, std::uint32_t>, UniqueFd> connections_;
  std::vector<int> wake_;  ///< eventfd of each attached rank; -1 once it is gone.
};

}  // namespace xylem::test
