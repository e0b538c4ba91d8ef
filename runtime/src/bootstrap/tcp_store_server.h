// SPDX-License-Identifier: Apache-2.0
//
// TcpStoreServer: the key-value store that rank 0 serves to the ranks of its job while they start,
// on a thread of its own.
//
//   connection:  proving ──handshake──► member ──bye, or end of stream──► closed
//
// The server hears only processes that prove the job's secret, one per rank, and holds a bounded
// amount of data. If too many strangers connect, the stranger that has been silent longest is
// dropped, so that members always get in. The start fails if a member ends without a bye, since it
// has died then, or if a member reports a failure. All members are told at once, and ranks that
// come later are told instead of welcomed. When all ranks have said bye, the thread ends by itself.
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
  /// If the start has failed, ranks that have not come yet are told so for a while, until
  /// `deadline` at most. The destructor may take as long.
  static Result<std::unique_ptr<TcpStoreServer>> start(std::vector<UniqueFd> listeners,
                                                       UniqueFd own_end,
                                                       const Key& key,
                                                       const Member& self,
                                                       const Logger& logger,
                                                       Deadline deadline);
  virtual ~TcpStoreServer() = default;
};

}  // namespace xylem::runtime
