// SPDX-License-Identifier: Apache-2.0
//
// A control plane in memory, for ranks that are threads of a test. It follows the contract of
// ControlPlane, and a test can use it to kill a rank.
#pragma once

#include "runtime/src/bootstrap/control_news.h"
#include "runtime/src/bootstrap/control_plane.h"
#include "xylem/base/unique_fd.h"

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace xylem::test {

/// The state that all ranks of a test job share.
class MemoryHub : public std::enable_shared_from_this<MemoryHub> {
 public:
  explicit MemoryHub(std::uint32_t size);
  std::unique_ptr<runtime::ControlPlane> attach(std::uint32_t rank);
  /// Reports to all other ranks that `rank` was lost.
  void kill(std::uint32_t rank);
  /// Reports to all other ranks that `rank` left the job.
  void part(std::uint32_t rank);
  /// Shuts down the connection between two ranks, as a network failure could. Returns false if the
  /// two ranks have no connection.
  bool cut(std::uint32_t a, std::uint32_t b);
  /// Drops all packets that arrive at one end of the connection between two ranks. Then neither
  /// rank receives an acknowledgement. Returns false if the two ranks have no connection.
  bool silence(std::uint32_t a, std::uint32_t b);
  /// The number of messages that all ranks have sent with ControlPlane::flood(). Of those of one
  /// topic that are sent at about the same time, one counts, since only one is sent.
  std::uint64_t floods();
  /// Waits until floods() is at least `count`. Returns false after 20 s.
  bool wait_for_floods(std::uint64_t count);
  /// Waits until `rank` has handled all items of its inbox. Returns false after 20 s.
  bool wait_until_served(std::uint32_t rank);

 private:
  friend class MemoryControl;
  struct News {
    enum class Kind : std::uint8_t { message, lost, left, connected } kind = Kind::message;
    std::uint32_t rank = 0;
    std::vector<std::byte> bytes;
    runtime::PayloadConnection connection{};
  };
  struct Round {
    std::vector<std::vector<std::byte>> values;
    std::uint32_t arrived = 0;
  };

  void tell_others(std::uint32_t rank, News::Kind kind, std::span<const std::byte> bytes);
  void tell(std::uint32_t rank, News news);  // The caller holds the mutex.
  /// Connects two ranks if they are not connected.
  void introduce(std::uint32_t a, std::uint32_t b);

  const std::uint32_t size_;
  std::mutex mutex_;
  std::condition_variable arrival_, served_, flooded_;
  std::map<std::uint64_t, Round> rounds_;
  std::vector<std::uint64_t> next_round_;
  std::vector<std::vector<News>> inbox_;
  std::vector<std::size_t> being_served_;  ///< Items that a rank is handling.
  std::uint64_t floods_ = 0;
  runtime::ControlNews topics_{0};
  /// A duplicate of the socket at one end of each connection. The key is the two ranks, the smaller
  /// first.
  std::map<std::pair<std::uint32_t, std::uint32_t>, UniqueFd> connections_;
  /// The eventfd of each attached rank; -1 for a rank that is not attached.
  std::vector<int> wake_;
};

}  // namespace xylem::test
