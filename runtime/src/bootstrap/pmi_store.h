// SPDX-License-Identifier: Apache-2.0
//
// PmiStore: the store of MPICH's launcher (Hydra, and others that speak PMI-1), over the descriptor
// that the launcher passes to each process.
//
// In PMI-1 a value is visible only after a barrier that all processes enter. So the first get()
// after a set() enters such a barrier, and all ranks must alternate in the same way: first all
// sets, then all gets. A rank that calls get() before any set() enters the first barrier there.
// Getting a key that nobody has set fails at once. Values are written in base64, in pieces of the
// size that the launcher allows.
//
// The connection belongs to the process and not to Xylem: an MPI library in the same program uses
// it, too, and it outlives every Runtime. Hydra kills a job if one of its processes ends without
// "finalize", and answers nothing after that message. So "finalize" is sent when the process exits.
#pragma once

#include "xylem/base/clock.h"
#include "xylem/runtime/store.h"

#include <cstdint>
#include <memory>
#include <set>
#include <string>

namespace xylem::runtime {

class PmiStore final : public Store {
 public:
  /// `fd` is the value of PMI_FD. Earlier starts of this process are counted, so that each start
  /// has its own keys.
  static Result<std::shared_ptr<Store>> open(int fd, std::uint32_t rank, Deadline deadline);

  Status set(std::string_view key, std::span<const std::byte> value) override;
  Result<std::vector<std::byte>> get(std::string_view key, Deadline deadline) override;

 private:
  PmiStore(int fd, Deadline deadline) : fd_(fd), deadline_(deadline) {}

  Status greet(std::uint32_t rank);
  Status barrier(Deadline deadline);
  Status put(const std::string& key, std::string_view text);
  Result<std::string> fetch(const std::string& key, Deadline deadline);
  /// Sends one command and returns the answer, which must start with "cmd=" and `answer`.
  Result<std::string> ask(const std::string& command, std::string_view answer, Deadline deadline);
  Result<std::string> read_line(Deadline deadline);
  std::string piece_key(std::string_view key, std::size_t piece) const;

  int fd_;
  /// The deadline of the start. set() uses it, since it has no deadline of its own.
  Deadline deadline_;
  std::string kvs_;
  std::size_t longest_key_ = 0, longest_value_ = 0;
  std::uint32_t start_ = 0;  ///< How many starts of Xylem this process had before.
  bool is_synchronized_ = false;
  bool is_broken_ = false;  ///< True after a request whose reply was not read: later replies would
                            ///< be matched to the wrong requests.
  std::string unread_;
  std::set<std::string, std::less<>> set_keys_;
};

/// Makes the process send "finalize" when it exits. Only the first call has an effect, so Xylem may
/// start several times. `fd` is the value of PMI_FD.
void finalize_pmi_at_exit(int fd);

}  // namespace xylem::runtime
