// SPDX-License-Identifier: Apache-2.0
//
// Context: what the communicators of a job share, such as its configuration, its wires, the engine
// with its pools, and the progress token. The Job makes the context and fills it while the job
// starts; each communicator keeps the context alive. The context contains the parts, but no logic.
#pragma once

#include "bootstrap/control_plane.h"
#include "calls/given_schedules.h"
#include "calls/operation.h"
#include "calls/scheduler.h"
#include "config.h"
#include "failure/failure_detector.h"
#include "groups/header_pool.h"
#include "groups/registry.h"
#include "groups/stopped_meshes.h"
#include "process_guard.h"
#include "progress/background.h"
#include "progress/progress.h"
#include "progress/progress_thread.h"
#include "progress/token.h"
#include "progress/work_source.h"
#include "wires/compute_devices.h"
#include "wires/wires.h"
#include "xylem/base/log.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace xylem::runtime {

struct Context {
  Context(LoadedConfig settings,
          Placement place,
          Logger log,
          std::vector<ComputeDevice> computes,
          ComputeDeviceMaker make_device,
          GivenSchedules schedules,
          std::unique_ptr<ControlPlane> plane)
      : loaded(std::move(settings)),
        placement(std::move(place)),
        logger(std::move(log)),
        devices(sources, std::move(computes), std::move(make_device)),
        given(std::move(schedules)),
        control(std::move(plane)),
        failures(placement.size) {}

  std::uint32_t rank() const noexcept { return placement.rank; }
  std::uint32_t size() const noexcept { return placement.size; }
  const Config& config() const noexcept { return loaded.config; }
  /// From now on, receivers within this host copy messages of at least `bytes` directly out of the
  /// sender's process (Views::pull_from()).
  void pull_from(std::uint64_t bytes) {
    progress.with_token([&](Token token) { wires->pull_from(token, bytes); });
  }

  // Members are declared in the order of creation, and destroyed in reverse.
  const LoadedConfig loaded;
  const Placement placement;
  const Logger logger;
  WorkSources sources;  ///< Job::list_sources() adds the sources.
  ComputeDevices devices;
  const GivenSchedules given;
  ProcessGuard process;
  const std::unique_ptr<ControlPlane> control;
  Progress progress{sources};
  ProgressThread thread{progress, sources};
  OperationPool operations{progress, process};
  TokenGuarded<HeaderPool> headers;
  Scheduler scheduler{progress, thread, headers};
  FailureDetector failures;
  std::unique_ptr<Wires> wires;  ///< Null until Job::open() has connected the ranks.
  Registry registry;
  StoppedMeshes stopped_meshes;
  Background background;
  std::atomic<std::uint32_t> own_meshes{0};  ///< Number of meshes that bind_later() has made.
  /// bind_later() has made no mesh for some group, and this was logged as a warning.
  std::atomic<bool> has_no_mesh{false};
};

}  // namespace xylem::runtime
