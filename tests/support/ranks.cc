// SPDX-License-Identifier: Apache-2.0
#include "support/ranks.h"

#include "runtime/src/job.h"
#include "support/buffer_allocator.h"
#include "support/outcome.h"
#include "xylem/transport/loopback.h"
#include "xylem/transport/shm.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <utility>
#include <vector>

namespace xylem::test {
namespace {

using transport::Transport;

/// Loopback within each host. Loopback also connects hosts, unless `is_host_only` is true.
runtime::WireKinds loopback_wires(transport::LoopbackFabric& fabric,
                                  bool has_no_host_wire,
                                  bool is_host_only) {
  return
      [&fabric, has_no_host_wire, is_host_only](const runtime::Hosts&, transport::DeviceMemory*) {
        const auto make = [&fabric](std::uint32_t) -> Result<std::unique_ptr<Transport>> {
          return fabric.attach();
        };
        const auto make_none = [](std::uint32_t) -> Result<std::unique_ptr<Transport>> {
          return failure(Code::exhausted, "no memory to share");
        };
        std::vector<runtime::WireKind> kinds(is_host_only ? 1 : 2);
        kinds[0] = {.name = "loopback",
                    .joins = "ranks of one host",
                    .may_join = [](const runtime::PeerFacts& a,
                                   const runtime::PeerFacts& b) { return a.kernel == b.kernel; },
                    .make = make};
        if (has_no_host_wire) kinds[0].make = make_none;
        if (is_host_only) return kinds;
        kinds[1] = {
            .name = "loopback-network",
            .joins = "all ranks",
            .may_join = [](const runtime::PeerFacts&, const runtime::PeerFacts&) { return true; },
            .make = make};
        return kinds;
      };
}

/// The kinds of transport that `usual` returns, changed by `adjust`.
runtime::WireKinds adjusted(runtime::WireKinds usual,
                            std::function<void(std::vector<runtime::WireKind>&)> adjust) {
  return [usual = std::move(usual), adjust = std::move(adjust)](const runtime::Hosts& hosts,
                                                                transport::DeviceMemory* devices) {
    auto kinds = usual(hosts, devices);
    adjust(kinds);
    return kinds;
  };
}

Result<Runtime> start_rank(const RankOptions& options,
                           std::uint32_t rank,
                           const std::shared_ptr<MemoryHub>& hub,
                           transport::LoopbackFabric& fabric) {
  runtime::Environment environment = options.environment;
  if (options.transport != "loopback") environment["XYLEM_TRANSPORT"] = options.transport;
  environment.try_emplace("XYLEM_TUNING", "off");
  environment.try_emplace("XYLEM_LOG", "off");
  if (options.adjust) options.adjust(rank, environment);
  runtime::JobParts parts;
  Options of_rank;
  if (options.device != nullptr) of_rank.device = options.device(rank);
  XYLEM_TRY(parts.loaded, runtime::load_config(environment, of_rank));
  parts.placement.launcher = "test";
  parts.placement.rank = rank;
  parts.placement.size = options.size;
  parts.placement.job = "test";
  XYLEM_TRY(parts.logger, Logger::open(parts.loaded.config.log, {"test", rank, ""}));
  parts.facts = runtime::own_facts(parts.loaded, parts.logger);
  parts.facts.ports = {{"lo", "", "", ""}};
  if (!options.hosts.empty()) parts.facts.kernel = options.hosts[rank];
  if (options.devices) {
    parts.devices = options.devices(rank);
  } else {
    parts.make_device = runtime::make_device_of_machine;
  }
  parts.control = hub->attach(rank);
  if (options.transport == "loopback") {
    parts.wires = loopback_wires(fabric, options.without_host_wire == rank,
                                 parts.loaded.config.transport == "shm");
  } else {
    parts.wires = runtime::configured_wires(parts.loaded.config, parts.logger);
    if (options.non_temporal) {
      parts.wires = adjusted(std::move(parts.wires), [](auto& kinds) {
        kinds.front().make = [](std::uint32_t peers) {
          return transport::make_shm({peers, 0, transport::ShmWrites::non_temporal});
        };
      });
    }
  }
  if (options.adjust_wires) {
    parts.wires = adjusted(std::move(parts.wires),
                           [&options, rank](auto& kinds) { options.adjust_wires(rank, kinds); });
  }
  XYLEM_TRY(auto job,
            runtime::Job::start(std::move(parts), Deadline::after(std::chrono::seconds(60))));
  return Runtime(std::move(job));
}

}  // namespace

void run_ranks(const RankOptions& options,
               const std::function<void(Runtime&, MemoryHub&)>& body,
               const std::function<void(std::uint32_t rank, const Status&)>& on_start_error) {
  const auto hub = std::make_shared<MemoryHub>(options.size);
  transport::LoopbackFabric fabric({options.seed, options.eager_bytes});
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < options.size; ++rank) {
    threads.emplace_back([&, rank] {
      BufferSource::of_thread =
          options.allocates_buffers ? BufferSource::library : BufferSource::heap;
      auto runtime = start_rank(options, rank, hub, fabric);
      if (runtime) {
        report_exceptions([&] { body(*runtime, *hub); });
      } else if (on_start_error) {
        on_start_error(rank, runtime.status());
      } else {
        ADD_FAILURE() << "rank " << rank << " cannot start: " << runtime.status().to_string();
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace xylem::test
