// SPDX-License-Identifier: Apache-2.0
//
// TcpStoreServer: the key-value store that rank 0 serves to the ranks of its job while they start,
// on a thread of its own.
//
//   connection:  proving ──handshake──► member ──bye, or end of stream──► closed
//
// The server serves only processes that prove the job's secret, one per rank, and stores a bounded
// amount of data. If too many strangers connect, the oldest of these connections is dropped, so
// that members can always connect. The start fails if a member ends without a bye, since it has
// died then, or if a member reports a failure. Then all members are sent the verdict at once, and
// ranks that connect later get it instead of a welcome. When all ranks have said bye, the thread
// ends by itself.
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
  /// Serves on `listeners`. `own_end` is this process's own connection, which is a member already.
  /// If the start has failed, the server still answers ranks that connect late, for a while and
  /// until `deadline` at most. The destructor may block for as long.
  static Result<std::unique_ptr<TcpStoreServer>> start(std::vector<UniqueFd> listeners,
                                                       UniqueFd own_end,
                                                       const Key& key,
                                                       const Member& self,
                                                       const Logger& logger,
                                                       Deadline deadline);
  virtual ~TcpStoreServer() = default;
};

}  // namespace xylem::runtime
