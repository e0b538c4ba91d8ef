// SPDX-License-Identifier: Apache-2.0
//
// Owners of UCP objects. A worker must be destroyed before its context: declare the context first.
#pragma once

#include "ucx/api.h"

#include <memory>

namespace xylem::transport::ucx {

struct ConfigRelease {
  void operator()(ucp_config_t* config) const noexcept { api().ucp_config_release(config); }
};
struct ContextCleanup {
  void operator()(ucp_context* context) const noexcept { api().ucp_cleanup(context); }
};
struct WorkerDestroy {
  void operator()(ucp_worker* worker) const noexcept { api().ucp_worker_destroy(worker); }
};

using Config = std::unique_ptr<ucp_config_t, ConfigRelease>;
using Context = std::unique_ptr<ucp_context, ContextCleanup>;
using Worker = std::unique_ptr<ucp_worker, WorkerDestroy>;

}  // namespace xylem::transport::ucx
