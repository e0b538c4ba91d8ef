// SPDX-License-Identifier: Apache-2.0
//
// StartStore: a store of Xylem's own that also informs all ranks when the start fails. The first
// failure that a rank reports to the store is the verdict of the start, and the store passes it to
// every rank. So all ranks name the same culprit, even if the first failure causes others. (The
// Verdict in situation.h is a different thing: a rank announces it when a communicator fails.)
#pragma once

#include "bootstrap/wire_format.h"
#include "xylem/runtime/store.h"

namespace xylem::runtime {

class StartStore : public Store {
 public:
  /// Readable when the result of verdict() may have changed; -1 if verdict() must be polled.
  virtual int fd() const noexcept { return -1; }
  /// Why the start has failed; OK if no failure is known. Never blocks. When the start has failed,
  /// set() and get() fail with the verdict, too.
  virtual Status verdict() = 0;
  /// Sets `key` and gets `wanted`, in one round trip if the store can do that.
  virtual Result<std::vector<std::byte>> set_and_get(std::string_view key,
                                                     std::span<const std::byte> value,
                                                     std::string_view wanted,
                                                     Deadline deadline);
  /// Reports to the store that the start has failed here, and why. Returns the verdict: `why`, or
  /// the failure that another rank has reported before.
  virtual Status abandon(const Status& why) = 0;
};

/// The verdict of a start as bytes: u8 code | u32 rank | text.
ByteVector write_verdict(const Status& why);
/// The verdict that the bytes contain. Always an error; `internal` if the bytes are not a verdict.
Status read_verdict(ByteSpan bytes);

}  // namespace xylem::runtime
