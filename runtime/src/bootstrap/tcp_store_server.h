// SPDX-License-Identifier: Apache-2.0
//
// TcpStoreServer: the key-value store that rank 0 serves to the ranks of its job while they start,
// on a thread of its own.
//
//   connection:  proving ──handshake──► member ──bye, or end of stream──► closed
//
// It hears only processes that prove the job's secret, one per rank, and holds a bounded amount.
// Where strangers crowd, the one that has been silent longest goes, so that members always get in.
// A member that ends without a bye has died, and the start has failed, as it has when a member says
// so: all members are told at once, and those who come later instead of being welcomed. When all
// ranks have said bye the thread ends by itself.
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
  /// Serves on `listeners`. `own_end` is this process's own connection, already a member. Of a
  /// failed start those who have not come yet are told for a while, until `deadline` at most: so
  /// long the end of the server may take.
  static Result<std::unique_ptr<TcpStoreServer>> start(std::vector<UniqueFd> listeners,
                                                       UniqueFd own_end,
                                                       const Key& key,
                                                       const Member& self,
                                                       const Logger& logger,
                                                       Deadline deadline);
  virtual ~TcpStoreServer() = default;
};

}  // namespace xylem::runtime
