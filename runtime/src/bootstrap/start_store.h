// SPDX-License-Identifier: Apache-2.0
//
// StartStore: a store of ours, through which ranks also learn that their start has failed. The
// first failure that the store hears of is the start's verdict, and every rank gets that one: so
// all name the same culprit, however many failures follow from it.
#pragma once

#include "bootstrap/wire.h"
#include "xylem/runtime/store.h"

namespace xylem::runtime {

class StartStore : public Store {
 public:
  /// Readable when verdict() may have something new to say; -1 where only asking tells.
  virtual int fd() const noexcept { return -1; }
  /// Why the start has failed, as far as can be told at once; ok while it goes on. set() and get()
  /// fail with it, too.
  virtual Status verdict() = 0;
  /// Says that the start has failed here, and why. Returns the verdict: `why`, or what another rank
  /// had said before.
  virtual Status give_up(const Status& why) = 0;
};

/// A verdict as bytes: u8 code | u32 rank | text.
ByteVector write_verdict(const Status& why);
/// An error always; `internal` for bytes that are none.
Status read_verdict(ByteSpan bytes);

}  // namespace xylem::runtime
