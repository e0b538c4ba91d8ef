// SPDX-License-Identifier: Apache-2.0
//
// Matcher: matches messages with posted receives by tag. If several receives match a message, or
// several messages match a receive, the oldest one is matched. Nodes are reused, so steady traffic
// allocates nothing.
#pragma once

#include "receive.h"
#include "xylem/transport/transport.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <vector>

namespace xylem::transport {

/// The approximate memory that a message without a receive occupies in addition to its bytes.
inline constexpr std::uint64_t kNodeBytes = 192;

/// Identifies a stream: a message that an incoming channel has announced or begun to deliver. The
/// transport that owns the channel finds the message by `id`.
struct StreamId {
  std::uint32_t channel = 0;
  std::uint64_t id = 0;

  friend bool operator==(const StreamId&, const StreamId&) = default;
};

/// A message that waits for a receive. It contains either its bytes, or the id of the stream that
/// will deliver them.
struct Arrived {
  Tag tag = 0;
  std::uint64_t bytes = 0;
  std::uint32_t channel = 0;  ///< The channel on which the message arrived.
  std::uint64_t weight = 0;   ///< The bytes that count towards the channel's limit.
  bool is_stream = false;
  StreamId stream;
  std::vector<std::byte> payload;
  std::uint64_t serial = 0;
};

class Matcher {
 public:
  /// Finds the oldest posted receive that matches a message with this tag, and moves it into
  /// `matched`. False if none matches.
  bool take_receive(Tag tag, Receive& matched);
  void post(const Receive& receive);
  /// Removes the posted receive of this operation. False if it is not posted.
  bool cancel(const Operation& operation);

  /// The oldest message that matches (tag, mask); null if none matches. Call drop() after use.
  Arrived* find_arrived(Tag tag, Tag mask);
  /// Adds a message that no receive has matched, with room for its payload. Null if there is no
  /// memory.
  Arrived* keep(std::uint32_t channel, Tag tag, std::uint64_t bytes) noexcept {
    return keep(channel, tag, bytes, bytes, kNodeBytes + bytes);
  }
  /// Adds a message that no receive has matched and that arrives as a stream. Null if there is no
  /// memory.
  Arrived* keep(const StreamId& stream,
                Tag tag,
                std::uint64_t bytes,
                std::uint64_t weight) noexcept;
  /// The total weight of a channel's messages that wait for a receive.
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
  /// Removes a message, but keeps its payload in place for a view until release_payload().
  void detach_payload(Arrived& arrived);
  void release_payload(const std::byte* payload);
  /// Drops all streams of this channel that no receive has matched.
  void drop_streams(std::uint32_t channel);
  /// Drops this stream, unless a receive has matched it.
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
  std::list<Arrived> viewed_;
  std::list<Posted> spare_posted_;
  std::list<Arrived> spare_arrived_;
  std::uint64_t spare_bytes_ = 0;  ///< Total capacity of the payloads in `spare_arrived_`.
  /// kept_[c] is the total weight of the waiting messages of channel c.
  std::vector<std::uint64_t> kept_;
  std::uint64_t serial_ = 0;
};

}  // namespace xylem::transport
