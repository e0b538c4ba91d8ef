// SPDX-License-Identifier: Apache-2.0
#include "matcher.h"

#include "xylem/base/check.h"
#include "xylem/base/hash.h"

#include <algorithm>
#include <new>

namespace xylem::transport {
std::size_t Matcher::bucket_of(Tag tag) noexcept { return mix(tag) % kBuckets; }

bool Matcher::take_receive(Tag tag, Receive& matched) {
  auto& bucket = posted_[bucket_of(tag)];
  const auto matches = [tag](const Posted& posted) {
    return tag_matches(tag, posted.receive.tag, posted.receive.mask);
  };
  const auto exact = std::ranges::find_if(bucket, matches);
  const auto masked = std::ranges::find_if(masked_, matches);
  const bool has_exact = exact != bucket.end(), has_masked = masked != masked_.end();
  if (!has_exact && !has_masked) return false;
  const bool takes_exact = has_exact && (!has_masked || exact->serial < masked->serial);
  auto& list = takes_exact ? bucket : masked_;
  const auto at = takes_exact ? exact : masked;
  matched = at->receive;
  spare_posted_.splice(spare_posted_.begin(), list, at);
  return true;
}

void Matcher::post(const Receive& receive) {
  auto& list = receive.mask == kExactMatch ? posted_[bucket_of(receive.tag)] : masked_;
  if (spare_posted_.empty()) spare_posted_.emplace_back();
  list.splice(list.end(), spare_posted_, spare_posted_.begin());
  list.back() = {receive, serial_++};
  // cancel() uses this pointer to find the list.
  receive.operation->state = &list;
}

bool Matcher::cancel(const Operation& operation) {
  // Null: the operation is a send, or a receive that was not posted.
  if (operation.state == nullptr) return false;
  auto& list = *static_cast<std::list<Posted>*>(operation.state);
  const auto at = std::ranges::find_if(
      list, [&](const Posted& posted) { return posted.receive.operation == &operation; });
  if (at == list.end()) return false;
  spare_posted_.splice(spare_posted_.begin(), list, at);
  return true;
}

Arrived* Matcher::find_arrived(Tag tag, Tag mask) {
  if (arrived_count_ == 0) return nullptr;
  if (mask == kExactMatch) {
    auto& bucket = arrived_[bucket_of(tag)];
    const auto at = std::ranges::find(bucket, tag, &Arrived::tag);
    return at == bucket.end() ? nullptr : &*at;
  }
  Arrived* oldest = nullptr;
  for (auto& bucket : arrived_) {
    const auto at = std::ranges::find_if(
        bucket, [&](const Arrived& arrived) { return tag_matches(arrived.tag, tag, mask); });
    if (at != bucket.end() && (oldest == nullptr || at->serial < oldest->serial)) oldest = &*at;
  }
  return oldest;
}

Arrived* Matcher::keep(const StreamId& stream,
                       Tag tag,
                       std::uint64_t bytes,
                       std::uint64_t weight) noexcept {
  Arrived* const arrived = keep(stream.channel, tag, bytes, 0, weight);
  if (arrived == nullptr) return nullptr;
  arrived->is_stream = true;
  arrived->stream = stream;
  return arrived;
}

Arrived* Matcher::keep(std::uint32_t channel,
                       Tag tag,
                       std::uint64_t bytes,
                       std::uint64_t payload,
                       std::uint64_t weight) noexcept try {
  if (channel >= kept_.size()) kept_.resize(channel + 1);
  if (spare_arrived_.empty()) spare_arrived_.emplace_back();
  Arrived& arrived = spare_arrived_.front();
  // If resize() throws, the node stays in the spare list.
  const std::size_t capacity = arrived.payload.capacity();
  arrived.payload.resize(payload);
  spare_bytes_ -= capacity;
  arrived.tag = tag;
  arrived.bytes = bytes;
  arrived.channel = channel;
  arrived.weight = weight;
  arrived.is_stream = false;
  arrived.serial = serial_++;
  auto& bucket = arrived_[bucket_of(tag)];
  bucket.splice(bucket.end(), spare_arrived_, spare_arrived_.begin());
  ++arrived_count_;
  kept_[channel] += arrived.weight;
  return &arrived;
} catch (const std::bad_alloc&) {
  return nullptr;
}

void Matcher::drop(Arrived& arrived) {
  uncount(arrived);
  recycle(arrived_[bucket_of(arrived.tag)], find(arrived));
}

void Matcher::detach_payload(Arrived& arrived) {
  uncount(arrived);
  viewed_.splice(viewed_.begin(), arrived_[bucket_of(arrived.tag)], find(arrived));
}

void Matcher::release_payload(const std::byte* payload) {
  const auto at = std::ranges::find_if(
      viewed_, [&](const Arrived& arrived) { return arrived.payload.data() == payload; });
  XYLEM_CHECK(at != viewed_.end(), viewed_.size());
  recycle(viewed_, at);
}

Matcher::ArrivedAt Matcher::find(const Arrived& arrived) {
  auto& bucket = arrived_[bucket_of(arrived.tag)];
  const auto at =
      std::ranges::find_if(bucket, [&](const Arrived& other) { return &other == &arrived; });
  XYLEM_CHECK(at != bucket.end(), arrived.serial);
  return at;
}

/// Removes a message from the counts of messages that wait for a receive.
void Matcher::uncount(const Arrived& arrived) noexcept {
  --arrived_count_;
  kept_[arrived.channel] -= arrived.weight;
}

/// Moves a node and its payload to the spare list, so that steady traffic allocates nothing. If the
/// spare list would exceed kMostSpare bytes, frees the node instead.
void Matcher::recycle(std::list<Arrived>& from, ArrivedAt at) noexcept {
  constexpr std::uint64_t kMostSpare = 1 << 20;
  const std::uint64_t bytes = at->payload.capacity() + kNodeBytes;
  if (spare_bytes_ + spare_arrived_.size() * kNodeBytes + bytes > kMostSpare) {
    from.erase(at);
    return;
  }
  spare_bytes_ += at->payload.capacity();
  spare_arrived_.splice(spare_arrived_.begin(), from, at);
}

template <typename Predicate>
void Matcher::drop_streams_if(const Predicate& is_dropped) {
  for (auto& bucket : arrived_) {
    for (auto it = bucket.begin(); it != bucket.end();) {
      const auto at = it++;
      if (!at->is_stream || !is_dropped(at->stream)) continue;
      uncount(*at);
      recycle(bucket, at);
    }
  }
}

void Matcher::drop_streams(std::uint32_t channel) {
  drop_streams_if([=](const StreamId& stream) { return stream.channel == channel; });
}

void Matcher::drop_stream(const StreamId& stream) {
  drop_streams_if([&](const StreamId& other) { return other == stream; });
}

}  // namespace xylem::transport
