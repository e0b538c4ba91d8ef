// SPDX-License-Identifier: Apache-2.0
//
// BruckGather: one rank's part in gathering the bytes of all ranks in ceil(log2 n) rounds, for any
// n. The class does no I/O: it returns the data to send and the rank to send them to, and take()
// gets the data that have arrived.
//
//   round k:  send the first min(2^k, n - 2^k) blocks to rank - 2^k, append as many from rank + 2^k
//   blocks:   block i contains the bytes of rank + i (mod n)
#pragma once

#include "bootstrap/wire_format.h"
#include "xylem/base/status.h"

#include <cstdint>
#include <vector>

namespace xylem::runtime {

class BruckGather {
 public:
  BruckGather(std::uint32_t rank, std::uint32_t size, ByteSpan mine);

  bool is_done() const noexcept { return blocks_.size() == size_; }
  std::uint8_t round() const noexcept { return round_; }
  std::uint32_t send_to() const noexcept;
  std::uint32_t receive_from() const noexcept;

  /// The blocks to send in this round.
  ByteVector outgoing() const;
  /// Appends the blocks that rank receive_from() has sent for this round, and begins the next
  /// round. Fails if `incoming` does not contain these blocks.
  Status take(ByteSpan incoming);

  /// The blocks of all ranks, in the order of the ranks. Call this once, when is_done().
  std::vector<ByteVector> take_result();

 private:
  std::uint64_t distance() const noexcept { return std::uint64_t{1} << round_; }
  std::uint64_t count() const noexcept;

  std::uint32_t rank_, size_;
  std::uint8_t round_ = 0;
  std::vector<ByteVector> blocks_;
};

}  // namespace xylem::runtime
