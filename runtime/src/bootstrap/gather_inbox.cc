// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/gather_inbox.h"

#include <cstddef>

namespace xylem::runtime {
namespace {

/// The largest number of bytes that this rank accepts in one round of a gather.
constexpr std::size_t kMostGathered = std::size_t{4} << 30;

}  // namespace

Status GatherInbox::add(std::uint32_t from, const GatherFrame& frame) {
  // A neighbour may have completed this rank's current gather and begun the next one. It cannot be
  // further ahead, since no gather completes without data of this rank.
  const bool expected = frame.gather + 1 >= begun_ && frame.gather <= begun_ && frame.round < 32 &&
                        from == (rank_ + (std::uint64_t{1} << frame.round)) % size_;
  if (!expected) return failure(Code::internal, "it sent a gather that was not expected");
  Incoming& incoming = rounds_[{frame.gather, frame.round}];
  if (incoming.is_complete || incoming.bytes.size() + frame.bytes.size() > kMostGathered) {
    return failure(Code::internal, "it sent more to gather than it may");
  }
  incoming.bytes.insert(incoming.bytes.end(), frame.bytes.begin(), frame.bytes.end());
  incoming.is_complete = frame.is_last;
  return {};
}

}  // namespace xylem::runtime
