// SPDX-License-Identifier: Apache-2.0
#include "shm/matcher.h"

#include "xylem/base/check.h"
#include "xylem/base/hash.h"

#include <algorithm>

namespace xylem::transport::shm {
std::size_t Matcher::bucket_of(Tag tag) noexcept { return mix(tag) % kBuckets; }

bool Matcher::take_receive(Tag tag, Receive& met) {
  auto& bucket = posted_[bucket_of(tag)];
  const auto meets = [tag](const Posted& posted) {
    return tag_matches(tag, posted.receive.tag, posted.receive.mask);
  };
  const auto exact = std::ranges::find_if(bucket, meets);
  const auto masked = std::ranges::find_if(masked_, meets);
  const bool has_exact = exact != bucket.end(), has_masked = masked != masked_.end();
  if (!has_exact && !has_masked) return false;
  const bool takes_exact = has_exact && (!has_masked || exact->serial < masked->serial);
  auto& list = takes_exact ? bucket : masked_;
  const auto at = takes_exact ? exact : masked;
  met = at->receive;
  spare_posted_.splice(spare_posted_.begin(), list, at);
  return true;
}

void Matcher::post(const Receive& receive) {
  auto& list = receive.mask == kExactMatch ? posted_[bucket_of(receive.tag)] : masked_;
  if (spare_posted_.empty()) spare_posted_.emplace_back();
  list.splice(list.end(), spare_posted_, spare_posted_.begin());
  list.back() = {receive, serial_++};
  // By which cancel() finds the bucket.
  receive.operation->state = &list;
}

bool Matcher::cancel(const Operation& operation) {
  // Of a receive that has met its message, the list no longer holds it.
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

Arrived& Matcher::keep(Tag tag, std::uint64_t bytes, bool is_stream) {
  auto& bucket = arrived_[bucket_of(tag)];
  if (spare_arrived_.empty()) spare_arrived_.emplace_back();
  bucket.splice(bucket.end(), spare_arrived_, spare_arrived_.begin());
  Arrived& arrived = bucket.back();
  arrived.tag = tag;
  arrived.bytes = bytes;
  arrived.is_stream = is_stream;
  arrived.payload.resize(is_stream ? 0 : bytes);
  arrived.serial = serial_++;
  ++arrived_count_;
  return arrived;
}

void Matcher::drop(Arrived& arrived) { move(arrived, spare_arrived_); }

void Matcher::lend(Arrived& arrived) { move(arrived, lent_); }

void Matcher::take_back(const std::byte* payload) {
  const auto at = std::ranges::find_if(
      lent_, [&](const Arrived& arrived) { return arrived.payload.data() == payload; });
  XYLEM_CHECK(at != lent_.end(), lent_.size());
  spare_arrived_.splice(spare_arrived_.begin(), lent_, at);
}

void Matcher::move(Arrived& arrived, std::list<Arrived>& to) {
  auto& bucket = arrived_[bucket_of(arrived.tag)];
  const auto at =
      std::ranges::find_if(bucket, [&](const Arrived& other) { return &other == &arrived; });
  XYLEM_CHECK(at != bucket.end(), arrived.tag);
  to.splice(to.begin(), bucket, at);
  --arrived_count_;
}

template <typename Predicate>
void Matcher::drop_streams_if(const Predicate& is_dropped) {
  for (auto& bucket : arrived_) {
    for (auto it = bucket.begin(); it != bucket.end();) {
      const auto at = it++;
      if (!at->is_stream || !is_dropped(at->stream)) continue;
      spare_arrived_.splice(spare_arrived_.begin(), bucket, at);
      --arrived_count_;
    }
  }
}

void Matcher::drop_streams(std::uint32_t channel) {
  drop_streams_if([=](const StreamId& stream) { return stream.channel == channel; });
}

void Matcher::drop_stream(const StreamId& stream) {
  drop_streams_if([&](const StreamId& other) { return other == stream; });
}

}  // namespace xylem::transport::shm
