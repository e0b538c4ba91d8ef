// SPDX-License-Identifier: Apache-2.0
//
// Makes UCX transports: configuration, context, worker. UCX first reads the environment variables
// UCX_*, so users can tune it; the settings that determine the reach then override these variables.
#include "ucx/api.h"
#include "ucx/reach.h"
#include "ucx/status.h"
#include "ucx/ucx_transport.h"
#include "xylem/transport/ucx.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace xylem::transport {
namespace ucx {
namespace {

using Settings = std::vector<std::pair<std::string, std::string>>;

/// Whether the loaded UCX library is older than this version. Xylem may have been built with the
/// headers of another version.
bool is_older_than(unsigned major, unsigned minor) {
  unsigned its_major = 0, its_minor = 0, release = 0;
  api().ucp_get_version(&its_major, &its_minor, &release);
  return std::pair(its_major, its_minor) < std::pair(major, minor);
}

Result<Settings> settings_for(const UcxOptions& options, std::span<const UcxDevice> found) {
  if (options.keepalive.count() <= 0) {
    return failure(Code::invalid_argument,
                   fmt::format("keepalive of {} ms: it must be positive, such as 300",
                               options.keepalive.count()));
  }
  XYLEM_TRY(auto transports, allowed_transports(options.reach, found));
  Settings settings = {
      {"TLS", std::move(transports)},
      {"SELF_DEVICES", "all"},
      {"KEEPALIVE_INTERVAL", fmt::format("{}ms", options.keepalive.count())},
  };
  const bool uses_tcp = std::ranges::any_of(found, [&](const UcxDevice& each) {
    return each.transport == "tcp" && allows(options.reach, each);
  });
  if (uses_tcp) {
    // If the peer dies while bytes of a vectored send wait for the socket, UCX's TCP transport
    // completes this send twice, and so aborts the process (seen in 1.13.1; later releases have the
    // same code). Without vectors, UCX copies the bytes first. Segments as large as the receiver's
    // (instead of the default 8 KiB) compensate for the cost of this copy.
    //
    // From UCX 1.17 on, ucp_config_modify() expects the option names of the environment variables.
    // Older versions expect these names without the transport's prefix.
    const std::string prefix = is_older_than(1, 17) ? "" : "TCP_";
    settings.emplace_back(prefix + "MAX_IOV", "0");
    settings.emplace_back(prefix + "TX_SEG_SIZE", "64k");
  }
  if (!options.devices.empty()) {
    XYLEM_TRY(auto devices, allowed_devices(options, found));
    settings.emplace_back("NET_DEVICES", std::move(devices));
  }
  return settings;
}

Result<Config> make_config(const UcxOptions& options, std::span<const UcxDevice> found) {
  ucp_config_t* raw = nullptr;
  ucs_status_t status = api().ucp_config_read(nullptr, nullptr, &raw);
  if (status != UCS_OK) {
    return failure(Code::invalid_argument,
                   fmt::format("UCX could not read its UCX_ variables: {}: correct the one that it "
                               "named, or unset it",
                               api().ucs_status_string(status)));
  }
  Config config(raw);
  XYLEM_TRY(const auto settings, settings_for(options, found));
  for (const auto& [key, value] : settings) {
    status = api().ucp_config_modify(config.get(), key.c_str(), value.c_str());
    if (status != UCS_OK) return refusal(status, fmt::format("set {} to {}", key, value));
  }
  return config;
}

Result<Context> make_context(const UcxOptions& options, std::span<const UcxDevice> found) {
  XYLEM_TRY(const auto config, make_config(options, found));
  ucp_params_t params{};
  params.field_mask =
      UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_REQUEST_SIZE | UCP_PARAM_FIELD_REQUEST_INIT;
  params.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
  params.request_size = sizeof(RequestState);
  params.request_init = init_request;
  ucp_context_h raw = nullptr;
  const ucs_status_t status =
      api().ucp_init_version(kOldestMajor, kOldestMinor, &params, config.get(), &raw);
  if (status != UCS_OK) {
    return refusal(status, fmt::format("make a context of reach {}", name(options.reach)));
  }
  return Context(raw);
}

Result<Worker> make_worker(ucp_context& context) {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  ucp_worker_h raw = nullptr;
  ucs_status_t status = api().ucp_worker_create(&context, &params, &raw);
  if (status != UCS_OK) return refusal(status, "make a worker", "raise ulimit -n if it is low");
  Worker worker(raw);

  ucp_worker_attr_t attributes{};
  attributes.field_mask = UCP_WORKER_ATTR_FIELD_THREAD_MODE;
  status = api().ucp_worker_query(worker.get(), &attributes);
  if (status != UCS_OK) return refusal(status, "describe its worker");
  if (attributes.thread_mode == UCS_THREAD_MODE_SINGLE) {
    return failure(Code::unsupported,
                   "this UCX was built for one thread: use one built with --enable-mt");
  }
  return worker;
}

bool moves_cuda(ucp_context& context) {
  ucp_context_attr_t attributes{};
  attributes.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
  return api().ucp_context_query(&context, &attributes) == UCS_OK &&
         (attributes.memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA)) != 0;
}

}  // namespace
}  // namespace ucx

Result<std::unique_ptr<Transport>> make_ucx(const UcxOptions& options, const Logger& logger) {
  XYLEM_TRY(const auto found, ucx_devices());  // opens UCX's library
  XYLEM_TRY(auto context, ucx::make_context(options, found));
  XYLEM_TRY(auto worker, ucx::make_worker(*context));
  const ucx::ContextFacts facts{options.reach, ucx::moves_cuda(*context),
                                ucx::copies_on_send(options.reach, found)};
  return ucx::UcxTransport::create(std::move(context), std::move(worker), facts, logger);
}

std::string ucx_version() {
  return ucx::is_api_open() ? ucx::api().ucp_get_version_string() : std::string();
}

}  // namespace xylem::transport
