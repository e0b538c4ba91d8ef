// SPDX-License-Identifier: Apache-2.0
//
// The functions of UCX that Xylem calls. UCX's library is opened when Xylem first needs it, so
// nothing of UCX has to be there for jobs that do without.
#pragma once

#include "xylem/base/status.h"

#include <ucp/api/ucp.h>
#include <uct/api/uct.h>

#include <memory>
#include <string>

namespace xylem::transport::ucx {

/// The oldest UCX that is supported. What Xylem calls has stayed the same since.
inline constexpr unsigned kOldestMajor = 1, kOldestMinor = 13;

/// UCX's functions by their names in its headers.
struct Api {
#define XYLEM_UCX(name) decltype(&::name) name = nullptr;  // NOLINT(bugprone-macro-parentheses)
#include "ucx/api_functions.inc"
#undef XYLEM_UCX
};

/// Opens the library, which then stays open until the process ends, and finds its functions. By
/// itself, opens the libucp.so.0 that the system knows, or else that of PyPI's package libucx-cu13,
/// which has no RDMA. Fails with `unsupported` if there is no such library, or if it is too old.
/// UCX installs signal handlers when it is opened; the handlers that the process had are put back.
Result<Api> load_api(const std::string& library = {});

namespace detail {
extern constinit Api opened_api;
}  // namespace detail

/// Opens UCX if this process has not done so yet, for api(). All callers get the same result. Any
/// thread may call it.
Status open_api();

/// Whether open_api() has succeeded. Any thread may call it.
bool is_api_open() noexcept;

/// The functions of the UCX of this process. open_api() must have succeeded before.
inline const Api& api() noexcept { return detail::opened_api; }

/// Ends an object of UCX by a function of the Api.
template <auto Function>
struct Release {
  template <typename Object>
  void operator()(Object* object) const noexcept {
    (api().*Function)(object);
  }
};
// Owners of UCP objects. A worker must be destroyed before its context: declare the context first.
using Config = std::unique_ptr<ucp_config_t, Release<&Api::ucp_config_release>>;
using Context = std::unique_ptr<ucp_context, Release<&Api::ucp_cleanup>>;
using Worker = std::unique_ptr<ucp_worker, Release<&Api::ucp_worker_destroy>>;

}  // namespace xylem::transport::ucx
