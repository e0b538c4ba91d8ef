// SPDX-License-Identifier: Apache-2.0
//
// TcpStoreServer: the key-value store that rank 0 serves to the ranks of its job while they start,
// on a thread of its own.
//
//   connection:  proving ──handshake──► member ──bye, or end of stream──► closed
//
// The server serves only processes that prove the job's secret, one per rank, and stores a bounded
// amount of data. If too many strangers connect, the server closes the oldest of their connections,
// so that members can always connect. The start fails if a member's connection ends without a bye,
// since the member has died, or if a member reports a failure. The server then sends the verdict to
// all members at once; a rank that connects later gets the verdict instead of a welcome. When all
// ranks have said bye, the thread ends by itself.
#pragma once

#include "bootstrap/handshake.h"
#include "xylem/base/clock.h"
#include "xylem/base/log.h"
#include "xylem/base/status.h"
#include "xylem/base/unique_fd.h"

#include <memory>
#include <vector>

namespace xylem::runtime {

class TcpStoreServer {
 public:
  /// Serves on `listeners`. `own_end` is the server's end of rank 0's own connection, which needs
  /// no handshake. If the start has failed, the destructor blocks while the server still answers
  /// ranks that connect late: for kFarewell (store_rules.h), and until `deadline` at most.
  static Result<std::unique_ptr<TcpStoreServer>> start(std::vector<UniqueFd> listeners,
                                                       UniqueFd own_end,
                                                       const Key& key,
                                                       const Member& self,
                                                       const Logger& logger,
                                                       Deadline deadline);
  virtual ~TcpStoreServer() = default;
};

}  // namespace xylem::runtime
