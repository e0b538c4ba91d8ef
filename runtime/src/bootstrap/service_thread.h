// SPDX-License-Identifier: Apache-2.0
//
// Xylem's own threads. They block all signals. If the system cannot start a thread, the result is
// an error, not an exception.
#pragma once

#include "xylem/base/clock.h"
#include "xylem/base/mutex.h"
#include "xylem/base/status.h"

#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>

namespace xylem::runtime {

/// Starts a thread. `purpose` completes "no thread can be started to …". Fails with `exhausted` if
/// the system cannot start another thread.
Result<std::thread> start_service_thread(std::string_view purpose, std::function<void()> body);

/// Calls `function` on a thread of its own, for system calls that take no deadline. Returns nothing
/// if the deadline passes first. The thread then continues until `function` returns, so `function`
/// must own everything that it uses.
template <typename Function, typename T = std::invoke_result_t<const Function&>>
Result<std::optional<T>> call_until(Deadline deadline,
                                    std::string_view purpose,
                                    Function function) {
  struct Shared {
    Mutex mutex;
    Condition ready;
    std::optional<T> result XYLEM_LOCKING(guarded_by(mutex));
  };
  const auto shared = std::make_shared<Shared>();
  const auto body = [shared, function = std::move(function)] {
    T result = function();
    const Lock lock(shared->mutex);
    shared->result.emplace(std::move(result));
    shared->ready.notify_one();
  };
  XYLEM_TRY(auto thread, start_service_thread(purpose, body));
  thread.detach();

  const Lock lock(shared->mutex);
  while (!shared->result && shared->ready.wait_until(shared->mutex, deadline)) {
  }
  return std::move(shared->result);
}

}  // namespace xylem::runtime
