// SPDX-License-Identifier: Apache-2.0
//
// ControlRequests: a queue of requests to the thread that serves the control plane. Any thread may
// add a request, which makes fd() readable. The serving thread removes the requests.
#pragma once

#include "bootstrap/wire_format.h"
#include "xylem/base/mutex.h"
#include "xylem/base/status.h"
#include "xylem/base/unique_fd.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace xylem::runtime {

class ControlRequests {
 public:
  /// Call it before all other functions. Fails if the process has no descriptor left.
  Status open();
  int fd() const noexcept { return wake_.get(); }

  /// A message to all ranks, or to one.
  struct Outgoing {
    std::optional<std::uint32_t> to;
    std::uint64_t topic = 0;
    ByteVector bytes;
  };

  // Any thread may call these:
  void flood(ByteSpan message, std::uint64_t topic);
  void send(std::uint32_t rank, ByteSpan message);
  void request_connection(std::uint32_t rank);

  // For the serving thread:
  /// Makes fd() unreadable until the next request.
  void clear_wake() noexcept;
  /// The messages that are to be sent, in the order in which they were added.
  std::vector<Outgoing> take_messages();
  /// The ranks to which connections for payload are requested.
  std::vector<std::uint32_t> take_wanted();

 private:
  void add(Outgoing message);

  UniqueFd wake_;
  Mutex mutex_;
  std::vector<Outgoing> messages_ XYLEM_LOCKING(guarded_by(mutex_));
  std::vector<std::uint32_t> wanted_ XYLEM_LOCKING(guarded_by(mutex_));
};

}  // namespace xylem::runtime
