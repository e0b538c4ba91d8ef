// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/service_thread.h"

#include <fmt/format.h>

#include <signal.h>

#include <system_error>
#include <utility>

namespace xylem::runtime {
namespace {

/// Blocks all signals in the calling thread while it starts another thread, which inherits the
/// signal mask.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

}  // namespace

Result<std::thread> start_service_thread(std::string_view purpose, std::function<void()> body) {
  const SignalsBlocked blocked;
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    return failure(Code::exhausted,
                   fmt::format("no thread can be started to {} ({}): end some of this user's "
                               "processes, or raise the limit (ulimit -u, the container's pids)",
                               purpose, error.code().message()));
  }
}

}  // namespace xylem::runtime
