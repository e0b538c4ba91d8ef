// SPDX-License-Identifier: Apache-2.0
//
// Where messages meet receives, by tag. Of several that match, the oldest is met. Nodes are kept
// and used again, so steady traffic allocates nothing.
#pragma once

#include "receive.h"
#include "xylem/transport/transport.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <vector>

namespace xylem::transport::shm {

/// A stream of an incoming channel: a large message on its way.
struct StreamId {
  std::uint32_t channel = 0;
  std::uint8_t id = 0;

  friend bool operator==(const StreamId&, const StreamId&) = default;
};

/// A message without a receive: its bytes, or the stream that will bring them.
struct Arrived {
  Tag tag = 0;
  std::uint64_t bytes = 0;
  bool is_stream = false;
  StreamId stream;
  std::vector<std::byte> payload;
  std::uint64_t serial = 0;
};

class Matcher {
 public:
  /// Moves the receive that this message meets into `met`; false if there is none.
  bool take_receive(Tag tag, Receive& met);
  void post(const Receive& receive);
  /// False if it is not posted (any more).
  bool cancel(const Operation& operation);

  /// The message that a receive meets; null if there is none. drop() it when it is used.
  Arrived* find_arrived(Tag tag, Tag mask);
  /// Room for one more; its payload is as large as `bytes` unless it is a stream.
  Arrived& keep(Tag tag, std::uint64_t bytes, bool is_stream);
  void drop(Arrived& arrived);
  /// Keeps its payload to be looked at until it is taken back.
  void lend(Arrived& arrived);
  void take_back(const std::byte* payload);
  /// Drops the streams of a channel that have met no receive, or one of them.
  void drop_streams(std::uint32_t channel);
  void drop_stream(const StreamId& stream);

 private:
  static constexpr std::size_t kBuckets = 256;
  struct Posted {
    Receive receive;
    std::uint64_t serial = 0;
  };
  template <typename Node>
  using Buckets = std::array<std::list<Node>, kBuckets>;
  static std::size_t bucket_of(Tag tag) noexcept;
  void move(Arrived& arrived, std::list<Arrived>& to);
  template <typename Predicate>
  void drop_streams_if(const Predicate& is_dropped);

  Buckets<Posted> posted_;
  std::list<Posted> masked_;
  Buckets<Arrived> arrived_;
  std::size_t arrived_count_ = 0;
  std::list<Arrived> lent_;
  std::list<Posted> spare_posted_;
  std::list<Arrived> spare_arrived_;
  std::uint64_t serial_ = 0;
};

}  // namespace xylem::transport::shm
