// SPDX-License-Identifier: Apache-2.0
//
// The functions of UCX that Xylem calls. UCX's library is opened when Xylem first needs it, so jobs
// that do not use UCX run without the library.
#pragma once

#include "xylem/base/status.h"

#include <ucp/api/ucp.h>
#include <uct/api/uct.h>

#include <memory>
#include <string>

namespace xylem::transport::ucx {

/// The oldest supported version of UCX. The functions that Xylem calls have not changed since then.
inline constexpr unsigned kOldestMajor = 1, kOldestMinor = 13;

/// Pointers to the functions of UCX. Each member has the name of its function.
struct Api {
#define XYLEM_UCX(name) decltype(&::name) name = nullptr;  // NOLINT(bugprone-macro-parentheses)
#include "ucx/api_functions.inc"
#undef XYLEM_UCX
};

/// Opens the library, which then stays open until the process ends, and looks up the functions of
/// Api. If `library` is empty, opens the system's libucp.so.0 or, if there is none, the library of
/// PyPI's package libucx-cu13, which has no RDMA. Fails with `unsupported` if there is no such
/// library, or if it is too old. UCX installs signal handlers when it is opened; this function
/// restores the handlers that the process had before.
Result<Api> load_api(const std::string& library = {});

namespace detail {
extern constinit Api opened_api;
}  // namespace detail

/// Opens UCX, unless this process has opened it already, so that api() can be called. All calls
/// return the same result. Any thread may call this function.
Status open_api();

/// Whether open_api() has succeeded. Any thread may call this function.
bool is_api_open() noexcept;

/// The functions of the UCX library that this process has opened. open_api() must have succeeded
/// before.
inline const Api& api() noexcept { return detail::opened_api; }

/// Deleter that destroys a UCX object with the function `Function` of Api.
template <auto Function>
struct Release {
  template <typename Object>
  void operator()(Object* object) const noexcept {
    (api().*Function)(object);
  }
};
// Owners of UCP objects. A worker must be destroyed before its context, so declare the context
// first.
using Config = std::unique_ptr<ucp_config_t, Release<&Api::ucp_config_release>>;
using Context = std::unique_ptr<ucp_context, Release<&Api::ucp_cleanup>>;
using Worker = std::unique_ptr<ucp_worker, Release<&Api::ucp_worker_destroy>>;

}  // namespace xylem::transport::ucx
