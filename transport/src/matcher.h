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

namespace xylem::transport {

/// What a message that waits for a receive takes of memory besides its bytes, about.
inline constexpr std::uint64_t kNodeBytes = 192;

/// A stream of an incoming channel: a message on its way that its transport looks up by a number.
struct StreamId {
  std::uint32_t channel = 0;
  std::uint64_t id = 0;

  friend bool operator==(const StreamId&, const StreamId&) = default;
};

/// A message without a receive: its bytes, or the stream that will bring them.
struct Arrived {
  Tag tag = 0;
  std::uint64_t bytes = 0;
  std::uint32_t channel = 0;  ///< By which it came.
  std::uint64_t weight = 0;   ///< What it counts for, of what its channel may keep.
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
  /// Room for one more with its payload. Null if there is no memory.
  Arrived* keep(std::uint32_t channel, Tag tag, std::uint64_t bytes) noexcept {
    return keep(channel, tag, bytes, bytes, kNodeBytes + bytes);
  }
  /// For one more that comes as a stream.
  Arrived* keep(const StreamId& stream,
                Tag tag,
                std::uint64_t bytes,
                std::uint64_t weight) noexcept;
  /// What the messages of a channel weigh that wait for a receive.
  std::uint64_t kept(std::uint32_t channel) const noexcept {
    return channel < kept_.size() ? kept_[channel] : 0;
  }
  template <typename Visit>
  void for_each_posted(const Visit& visit) const {
    for (const auto& bucket : posted_) {
      for (const Posted& posted : bucket) visit(posted.receive);
    }
    for (const Posted& posted : masked_) visit(posted.receive);
  }
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
  using ArrivedAt = std::list<Arrived>::iterator;
  Arrived* keep(std::uint32_t channel,
                Tag tag,
                std::uint64_t bytes,
                std::uint64_t payload,
                std::uint64_t weight) noexcept;
  ArrivedAt find(const Arrived& arrived);
  void uncount(const Arrived& arrived) noexcept;
  void recycle(std::list<Arrived>& from, ArrivedAt at) noexcept;
  template <typename Predicate>
  void drop_streams_if(const Predicate& is_dropped);

  Buckets<Posted> posted_;
  std::list<Posted> masked_;
  Buckets<Arrived> arrived_;
  std::size_t arrived_count_ = 0;
  std::list<Arrived> lent_;
  std::list<Posted> spare_posted_;
  std::list<Arrived> spare_arrived_;
  std::uint64_t spare_bytes_ = 0;    ///< Of their payloads.
  std::vector<std::uint64_t> kept_;  ///< By channel.
  std::uint64_t serial_ = 0;
};

}  // namespace xylem::transport
