// SPDX-License-Identifier: Apache-2.0
#include "ucx/api.h"

#include <fmt/format.h>

#include <dlfcn.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <cstddef>

namespace xylem::transport::ucx {
namespace {

/// Puts the signal handlers that the process has now back when the object ends.
class KeptHandlers {
 public:
  KeptHandlers() noexcept {
    for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], nullptr, &kept_[i]);
  }
  ~KeptHandlers() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &kept_[i], nullptr);
  }
  KeptHandlers(const KeptHandlers&) = delete;
  KeptHandlers& operator=(const KeptHandlers&) = delete;

 private:
  /// Those of UCX_ERROR_SIGNALS.
  static constexpr std::array kSignals = {SIGILL, SIGSEGV, SIGBUS, SIGFPE};
  std::array<struct sigaction, kSignals.size()> kept_{};
};

/// Fills in a member of Api. False if the library does not have the function.
template <class Function>
bool find(void* library, const char* name, Function& function) {
  // This also looks in the libraries that libucp itself needs: libuct and libucs.
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

std::atomic<bool> api_is_open = false;

}  // namespace

constinit Api detail::opened_api;

Result<Api> load_api(const std::string& library) {
  const KeptHandlers handlers;
  void* const handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    return failure(
        Code::unsupported,
        fmt::format("UCX cannot be opened ({}): install libucx0 of Debian or libucx-cu13 "
                    "of PyPI, or use another transport",
                    ::dlerror()));
  }
  Api api;
#define XYLEM_UCX(name)                                                                   \
  if (!find(handle, #name, api.name)) {                                                   \
    return failure(                                                                       \
        Code::unsupported,                                                                \
        fmt::format("{} has no function {}: install UCX 1.13 or newer", library, #name)); \
  }
#include "ucx/api_functions.inc"
#undef XYLEM_UCX
  return api;
}

Status open_api() {
  static const Status kOpened = [] {
    auto loaded = load_api();
    if (loaded) {
      detail::opened_api = *loaded;
      api_is_open.store(true, std::memory_order_release);
    }
    return loaded.status();
  }();
  return kOpened;
}

bool is_api_open() noexcept { return api_is_open.load(std::memory_order_acquire); }

}  // namespace xylem::transport::ucx
