// SPDX-License-Identifier: Apache-2.0
//
// StartStore: a store of Xylem's own, through which ranks also learn that their start has failed.
// The first failure that the store hears of is the verdict of the start, and every rank gets it. So
// all ranks name the same culprit, however many failures follow from the first. (Later, a Verdict
// in situation.h is what a rank announces when a communicator fails.)
#pragma once

#include "bootstrap/wire.h"
#include "xylem/runtime/store.h"

namespace xylem::runtime {

class StartStore : public Store {
 public:
  /// Readable when verdict() may have something new to say; -1 if only asking tells.
  virtual int fd() const noexcept { return -1; }
  /// Why the start has failed, as far as is known without waiting; OK while it goes on. set() and
  /// get() fail with it, too.
  virtual Status verdict() = 0;
  /// Sets `key` and gets `wanted`, in one round trip where the store can.
  virtual Result<std::vector<std::byte>> set_and_get(std::string_view key,
                                                     std::span<const std::byte> value,
                                                     std::string_view wanted,
                                                     Deadline deadline);
  /// Tells the store that the start has failed here, and why. Returns the verdict: `why`, or what
  /// another rank has told before.
  virtual Status give_up(const Status& why) = 0;
};

/// The verdict of a start as bytes: u8 code | u32 rank | text.
ByteVector write_verdict(const Status& why);
/// The verdict that the bytes contain. Always an error; `internal` if the bytes are not a verdict.
Status read_verdict(ByteSpan bytes);

}  // namespace xylem::runtime
