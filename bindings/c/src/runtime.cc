// SPDX-License-Identifier: Apache-2.0
//
// Runtime in the C API.
#include "failure.h"
#include "handles.h"
#include "sized.h"
#include "user_store.h"
#include "xylem/base/version.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <optional>

namespace xylem::c {
namespace {

std::optional<std::string> text(const char* given) {
  if (given == nullptr) return std::nullopt;
  return given;
}

std::optional<std::chrono::milliseconds> milliseconds(std::uint64_t given) {
  if (given == 0) return std::nullopt;
  constexpr std::uint64_t kLongest = std::numeric_limits<std::int64_t>::max();
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::min(given, kLongest)));
}

Result<Options> to_options(const xylem_options* given) {
  Options options;
  if (given == nullptr) return options;
  XYLEM_TRY(const xylem_options known, read_sized("xylem_options", given));
  // `rank` 0 means "not set" if `size` is not set either.
  if (known.size != 0 || known.rank != 0) options.rank = known.rank;
  if (known.size != 0) options.size = known.size;
  if (known.store != nullptr) {
    XYLEM_TRY(options.store, make_user_store(*known.store));
  }
  options.rendezvous = text(known.rendezvous);
  options.job = text(known.job);
  options.secret = text(known.secret);
  options.start_timeout = milliseconds(known.start_timeout_ms);
  options.timeout = milliseconds(known.timeout_ms);
  options.transport = text(known.transport);
  options.algorithm = text(known.algorithm);
  options.interfaces = text(known.interfaces);
  options.devices = text(known.devices);
  options.log = text(known.log);
  options.require = text(known.require);
  return options;
}

}  // namespace
}  // namespace xylem::c

xylem_status xylem_runtime_create(const xylem_options* options, xylem_runtime** runtime) {
  return xylem::c::guarded([&]() -> xylem::Status {
    if (runtime == nullptr) return xylem::c::null_argument("runtime");
    *runtime = nullptr;
    XYLEM_TRY(const auto chosen, xylem::c::to_options(options));
    auto handle = std::make_unique<xylem_runtime>();
    XYLEM_TRY(handle->runtime, xylem::Runtime::create(chosen));
    handle->world = {handle->runtime.world(), true};
    handle->hosts = handle->runtime.hosts();
    handle->launcher = handle->runtime.launcher();
    *runtime = handle.release();
    return {};
  });
}

xylem_status xylem_runtime_shutdown(xylem_runtime* runtime) {
  return xylem::c::guarded([&]() -> xylem::Status {
    if (runtime == nullptr) return xylem::c::null_argument("runtime");
    return runtime->runtime.shutdown();
  });
}

void xylem_runtime_destroy(xylem_runtime* runtime) {
  (void)xylem::c::guarded([&]() -> xylem::Status {
    const std::unique_ptr<xylem_runtime> owned(runtime);
    return {};
  });
}

xylem_communicator* xylem_runtime_world(xylem_runtime* runtime) {
  return runtime == nullptr ? nullptr : &runtime->world;
}

uint32_t xylem_runtime_rank(const xylem_runtime* runtime) {
  return runtime == nullptr ? XYLEM_NO_RANK : runtime->runtime.rank();
}

uint32_t xylem_runtime_size(const xylem_runtime* runtime) {
  return runtime == nullptr ? 0 : runtime->runtime.size();
}

uint32_t xylem_runtime_local_rank(const xylem_runtime* runtime) {
  return runtime == nullptr ? XYLEM_NO_RANK : runtime->runtime.local_rank();
}

uint32_t xylem_runtime_local_size(const xylem_runtime* runtime) {
  return runtime == nullptr ? 0 : runtime->runtime.local_size();
}

const char* xylem_runtime_host(const xylem_runtime* runtime, uint32_t rank) {
  return runtime == nullptr || rank >= runtime->hosts.size() ? nullptr
                                                             : runtime->hosts[rank].c_str();
}

const char* xylem_runtime_launcher(const xylem_runtime* runtime) {
  return runtime == nullptr ? nullptr : runtime->launcher.c_str();
}

const char* xylem_version(void) { return XYLEM_VERSION; }
