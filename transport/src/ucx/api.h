// SPDX-License-Identifier: Apache-2.0
//
// The functions of UCX that Xylem calls. UCX's library is opened when Xylem first needs it, so jobs
// that do not use UCX need no library.
#pragma once

#include "xylem/base/status.h"

#include <ucp/api/ucp.h>
#include <uct/api/uct.h>

#include <memory>
#include <string>

namespace xylem::transport::ucx {

/// The oldest UCX that is supported. The functions that Xylem calls have not changed since.
inline constexpr unsigned kOldestMajor = 1, kOldestMinor = 13;

/// UCX's functions by their names in its headers.
struct Api {
#define XYLEM_UCX(name) decltype(&::name) name = nullptr;  // NOLINT(bugprone-macro-parentheses)
#include "ucx/api_functions.inc"
#undef XYLEM_UCX
};

/// Opens the library, which then stays open until the process ends, and finds its functions. If
/// `library` is empty, opens the system's libucp.so.0 or, if there is none, that of PyPI's package
/// libucx-cu13, which has no RDMA. Fails with `unsupported` if there is no such library, or if it
/// is too old. UCX installs signal handlers when it is opened; the process's own handlers are
/// restored.
Result<Api> load_api(const std::string& library = {});

namespace detail {
extern constinit Api opened_api;
}  // namespace detail

/// Opens UCX, if this process has not opened it yet, so that api() can be called. All callers get
/// the same result. Any thread may call it.
Status open_api();

/// Whether open_api() has succeeded. Any thread may call it.
bool is_api_open() noexcept;

/// The functions of the UCX of this process. open_api() must have succeeded before.
inline const Api& api() noexcept { return detail::opened_api; }

/// Deleter that destroys a UCX object by a function of the Api.
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
