// SPDX-License-Identifier: Apache-2.0
#include "ucx/api.h"

#include <fmt/format.h>

#include <dlfcn.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <system_error>
#include <tuple>
#include <vector>

namespace xylem::transport::ucx {
namespace {

constexpr const char* kLibrary = "libucp.so.0";

/// Saves the signal handlers of the process. The destructor restores those that have changed.
class KeptHandlers {
 public:
  KeptHandlers() noexcept {
    for (int signal = 1; signal < kSignals; ++signal) {
      is_kept_[signal] = ::sigaction(signal, nullptr, &kept_[signal]) == 0;
    }
  }
  ~KeptHandlers() {
    for (int signal = 1; signal < kSignals; ++signal) {
      struct sigaction now {};
      if (!is_kept_[signal] || ::sigaction(signal, nullptr, &now) != 0) continue;
      if (now.sa_sigaction != kept_[signal].sa_sigaction ||
          now.sa_flags != kept_[signal].sa_flags) {
        ::sigaction(signal, &kept_[signal], nullptr);
      }
    }
  }
  KeptHandlers(const KeptHandlers&) = delete;
  KeptHandlers& operator=(const KeptHandlers&) = delete;

 private:
  /// All signals, since UCX_ERROR_SIGNALS and UCX_DEBUG_SIGNO may name any signal.
  static constexpr int kSignals = NSIG;
  std::array<struct sigaction, kSignals> kept_{};
  std::array<bool, kSignals> is_kept_{};
};

#ifdef XYLEM_PYTHON_PACKAGES
/// Where pip installs the UCX library of PyPI, if Xylem is a Python package.
std::vector<std::filesystem::path> libraries_of_pypi() {
  Dl_info here{};
  if (::dladdr(reinterpret_cast<const void*>(&libraries_of_pypi), &here) == 0) return {};
  std::filesystem::path self(here.dli_fname);
  // `self` is only a name if the shell has found the command `xylem` in PATH.
  std::error_code error;
  if (!self.is_absolute()) self = std::filesystem::read_symlink("/proc/self/exe", error);
  const auto above = self.parent_path().parent_path();
  const auto library = std::filesystem::path("libucx/lib") / kLibrary;
  // This code is part of a Python module, whose folder is next to libucx, or of the command
  // `xylem`.
  return {above / library, above / XYLEM_PYTHON_PACKAGES / library};
}
#else
std::vector<std::filesystem::path> libraries_of_pypi() { return {}; }
#endif

/// Opens the library `name` or, if it is empty, the system's UCX or, if there is none, PyPI's.
void* open_library(const std::string& name) {
  constexpr int kMode = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
  if (!name.empty()) return ::dlopen(name.c_str(), kMode);
  if (void* const found = ::dlopen(kLibrary, kMode)) return found;
  for (const auto& library : libraries_of_pypi()) {
    if (std::error_code error; exists(library, error)) return ::dlopen(library.c_str(), kMode);
  }
  return ::dlopen(kLibrary, kMode);  // Fails again, so that dlerror() returns its error.
}

/// Sets a member of Api. False if the library does not have the function.
template <class Function>
bool find(void* library, const char* name, Function& function) {
  // dlsym() also searches the libraries on which libucp depends: libuct and libucs.
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

std::atomic<bool> api_is_open = false;

}  // namespace

constinit Api detail::opened_api;

Result<Api> load_api(const std::string& library) {
  const KeptHandlers handlers;
  void* const handle = open_library(library);
  if (handle == nullptr) {
    return failure(Code::unsupported,
                   fmt::format("UCX cannot be opened ({}): install UCX {}.{} or newer (Debian's "
                               "package libucx0), or use another transport",
                               ::dlerror(), kOldestMajor, kOldestMinor));
  }
  const std::string file = library.empty() ? kLibrary : library;
  const std::string remedy = fmt::format("install UCX {}.{} or newer", kOldestMajor, kOldestMinor);
  Api api;
#define XYLEM_UCX(name)                                                            \
  if (!find(handle, #name, api.name)) {                                            \
    return failure(Code::unsupported,                                              \
                   fmt::format("{} has no function {}: {}", file, #name, remedy)); \
  }
#include "ucx/api_functions.inc"
#undef XYLEM_UCX
  unsigned major = 0, minor = 0, release = 0;
  api.ucp_get_version(&major, &minor, &release);
  if (std::tie(major, minor) < std::tie(kOldestMajor, kOldestMinor)) {
    return failure(Code::unsupported,
                   fmt::format("UCX {}.{}.{} is too old: {}", major, minor, release, remedy));
  }
  return api;
}

Status open_api() {
  // Never destroyed, since destructors of static objects may call UCX.
  // NOLINTNEXTLINE(cppcoreguidelines-owning-memory)
  static const auto& opened = *new Status([] {
    auto loaded = load_api();
    if (loaded) {
      detail::opened_api = *loaded;
      api_is_open.store(true, std::memory_order_release);
    }
    return loaded.status();
  }());
  return opened;
}

bool is_api_open() noexcept { return api_is_open.load(std::memory_order_acquire); }

}  // namespace xylem::transport::ucx
