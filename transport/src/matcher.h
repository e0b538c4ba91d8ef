// SPDX-License-Identifier: Apache-2.0
//
// Matcher: matches messages with posted receives by tag. If several match, the oldest matches.
// Nodes are reused, so steady traffic allocates nothing.
#pragma once

#include "receive.h"
#include "xylem/transport/transport.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <vector>

namespace xylem::transport {

/// About how much memory a message that waits for a receive occupies in addition to its bytes.
inline constexpr std::uint64_t kNodeBytes = 192;

/// Names a stream: a message of an incoming channel that has begun to arrive. Its transport finds
/// it by `id`.
struct StreamId {
  std::uint32_t channel = 0;
  std::uint64_t id = 0;

  friend bool operator==(const StreamId&, const StreamId&) = default;
};

/// A message that waits for a receive: either its bytes, or the stream in which they will arrive.
struct Arrived {
  Tag tag = 0;
  std::uint64_t bytes = 0;
  std::uint32_t channel = 0;  ///< The channel on which it arrived.
  std::uint64_t weight = 0;   ///< What it counts towards the channel's limit, in bytes.
  bool is_stream = false;
  StreamId stream;
  std::vector<std::byte> payload;
  std::uint64_t serial = 0;
};

class Matcher {
 public:
  /// Moves the receive that matches this message into `matched`; false if there is none.
  bool take_receive(Tag tag, Receive& matched);
  void post(const Receive& receive);
  /// Cancels a receive that is still posted; false if it is not.
  bool cancel(const Operation& operation);

  /// The message that matches a receive; null if there is none. Call drop() after use.
  Arrived* find_arrived(Tag tag, Tag mask);
  /// Adds a message and room for its payload. Null if there is no memory.
  Arrived* keep(std::uint32_t channel, Tag tag, std::uint64_t bytes) noexcept {
    return keep(channel, tag, bytes, bytes, kNodeBytes + bytes);
  }
  /// Adds a message that arrives as a stream. Null if there is no memory.
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
  /// Keeps the payload of a message in place for a view, until release_payload().
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
