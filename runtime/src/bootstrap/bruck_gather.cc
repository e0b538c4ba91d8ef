// SPDX-License-Identifier: Apache-2.0
//
// Bruck's all-gather (Bruck et al., "Efficient algorithms for all-to-all communications in
// multiport message-passing systems", 1997) of values of any size.
#include "bootstrap/bruck_gather.h"

#include "xylem/base/check.h"

#include <fmt/format.h>

#include <algorithm>

namespace xylem::runtime {

BruckGather::BruckGather(std::uint32_t rank, std::uint32_t size, ByteSpan mine)
    : rank_(rank), size_(size) {
  blocks_.reserve(size);
  blocks_.emplace_back(mine.begin(), mine.end());
}

std::uint64_t BruckGather::count() const noexcept {
  return std::min(distance(), size_ - distance());
}

std::uint32_t BruckGather::send_to() const noexcept {
  return static_cast<std::uint32_t>((rank_ + size_ - distance()) % size_);
}

std::uint32_t BruckGather::receive_from() const noexcept {
  return static_cast<std::uint32_t>((rank_ + distance()) % size_);
}

ByteVector BruckGather::outgoing() const {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < count(); ++i) bytes += sizeof(std::uint64_t) + blocks_[i].size();
  ByteVector out;
  out.reserve(bytes);
  WireWriter writer(out);
  for (std::size_t i = 0; i < count(); ++i) {
    writer.number(std::uint64_t{blocks_[i].size()}).raw(blocks_[i]);
  }
  return out;
}

Status BruckGather::take(ByteSpan incoming) {
  WireReader reader(incoming);
  for (std::uint64_t left = count(); left > 0; --left) {
    const auto bytes = reader.number<std::uint64_t>();
    const ByteSpan block = reader.raw(bytes);
    blocks_.emplace_back(block.begin(), block.end());
  }
  if (!reader.finished()) {
    return failure(Code::internal,
                   fmt::format("rank {} sent a gather of {} bytes that is not of {} blocks",
                               receive_from(), incoming.size(), count()),
                   receive_from());
  }
  ++round_;
  return {};
}

std::vector<ByteVector> BruckGather::take_result() {
  XYLEM_CHECK(is_done(), blocks_.size(), size_);
  std::ranges::rotate(blocks_, blocks_.begin() + (size_ - rank_) % size_);
  return std::move(blocks_);
}

}  // namespace xylem::runtime
