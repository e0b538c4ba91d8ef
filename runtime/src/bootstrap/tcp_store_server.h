// SPDX-License-Identifier: Apache-2.0
//
// TcpStoreServer: the key-value store that rank 0 serves to the ranks of its job while they start,
// on a thread of its own.
//
//   connection:  proving ──handshake──► member ──bye, or end of stream──► closed
//
// It hears only processes that prove the job's secret, one per rank, and holds a bounded amount. A
// member that ends without a bye has died: everyone who waits, and everyone who asks later, is
// told. When all ranks have said bye the thread ends by itself.
#pragma once

#include "bootstrap/handshake.h"
#include "xylem/base/log.h"
#include "xylem/base/status.h"
#include "xylem/base/unique_fd.h"

#include <memory>
#include <vector>

namespace xylem::runtime {

class TcpStoreServer {
 public:
  /// Serves on `listeners`. `own_end` is this process's own connection, already a member.
  static Result<std::unique_ptr<TcpStoreServer>> start(std::vector<UniqueFd> listeners,
                                                       UniqueFd own_end,
                                                       const Key& key,
                                                       const Member& self,
                                                       const Logger& logger);
  virtual ~TcpStoreServer() = default;
};

}  // namespace xylem::runtime
