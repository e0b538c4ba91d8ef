// SPDX-License-Identifier: Apache-2.0
#include "support/ranks.h"

#include "runtime/src/job.h"
#include "support/buffer_allocator.h"
#include "support/outcome.h"
#include "xylem/transport/loopback.h"
#include "xylem/transport/shm.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace xylem::test {
namespace {

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
  XYLEM_TRY(parts.loaded, runtime::load_config(environment, Options{}));
  parts.placement.launcher = "test";
  parts.placement.rank = rank;
  parts.placement.size = options.size;
  parts.placement.job = "test";
  XYLEM_TRY(parts.logger, Logger::open(parts.loaded.config.log, {"test", rank, ""}));
  parts.facts = runtime::own_facts(parts.loaded, parts.logger);
  if (!options.hosts.empty()) parts.facts.kernel = options.hosts[rank];
  if (options.devices) {
    parts.devices = options.devices(rank);
  } else {
    parts.make_device = runtime::make_device_of_machine;
  }
  parts.control = hub->attach(rank);
  if (options.transport == "loopback") {
    const bool has_no_host_wire = options.without_host_wire == rank;
    parts.wires = [&fabric,
                   has_no_host_wire](const runtime::WireRequest& request) -> Result<runtime::Wire> {
      const bool is_host = request.reach == runtime::Reach::host;
      if (is_host && has_no_host_wire) return failure(Code::exhausted, "no memory to share");
      return runtime::Wire{is_host ? "loopback" : "loopback-network", fabric.attach()};
    };
  } else {
    parts.wires = runtime::configured_wires(parts.loaded.config, "lo", parts.logger);
    if (options.past_cache) {
      parts.wires = [usual = std::move(parts.wires)](
                        const runtime::WireRequest& request) -> Result<runtime::Wire> {
        if (request.reach != runtime::Reach::host) return usual(request);
        runtime::Wire wire{"shm", nullptr};
        XYLEM_TRY(wire.transport,
                  transport::make_shm({request.peers, 0, transport::ShmWrites::past_cache}));
        return wire;
      };
    }
  }
  if (options.adjust_wire) {
    parts.wires = [usual = std::move(parts.wires), &options,
                   rank](const runtime::WireRequest& request) -> Result<runtime::Wire> {
      XYLEM_TRY(auto wire, usual(request));
      return options.adjust_wire(rank, request.reach, std::move(wire));
    };
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
