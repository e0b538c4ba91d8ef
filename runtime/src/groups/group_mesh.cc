// SPDX-License-Identifier: Apache-2.0
//
// Calls that the devices carry out by themselves. The ranks of a group bind their devices; if these
// reach each other's memory, they form a mesh (execution/mesh.h), and calls on streams run there.
//
// Such a call is also an operation of the engine: a barrier, which begins when the stream has done
// the call. So all that holds for other calls holds for it, too: ranks that disagree about a call
// notice it, a rank that does not call is named, limits of time and deaths end the call. When it
// ends with an error, the mesh is stopped, and the streams go on.
#include "groups/gather_from_all.h"
#include "groups/group.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace xylem::runtime {
namespace {

/// The costs of a mesh whose devices read each other's memory at this rate. The rest is assumed of
/// all devices: it only decides between one shot and two.
collectives::CostModel mesh_costs(double read_GBps) {
  collectives::CostModel model;
  model.local = {.alpha_us = 0.5, .bandwidth_GBps = read_GBps};
  model.compute = {
      .reduce_GBps = 500, .copy_GBps = 1000, .is_device = true, .enqueue_us = 0, .latency_us = 2};
  model.step_us = 0;
  model.exchange_step_us = 0;
  model.slice_bytes = std::uint64_t{1} << 40;
  return model;
}

/// What each rank tells the others of its end of the mesh, if it has one.
struct Offer {
  std::uint64_t has_member = 0;
  execution::MeshMember member;
};
static_assert(std::is_trivially_copyable_v<Offer>);

}  // namespace

/// Makes this rank's end of the mesh, joins those of the others, and measures how fast the slowest
/// device reads another's memory. Collective. `mesh` stays null if any rank cannot take part; the
/// Status then says why this rank cannot.
Status Group::join_mesh(const Memory& device,
                        std::shared_ptr<execution::Mesh>& mesh,
                        double& read_GBps) {
  Status outcome;
  std::unique_ptr<execution::Mesh> made;
  if (device.kind == MemoryKind::host) {
    outcome = failure(Code::unsupported, "this rank has no device");
  } else if (!are_on_one_host()) {
    outcome = failure(Code::unsupported, "its ranks are on several hosts");
  } else if (auto compute = context_->devices.of(device); !compute) {
    outcome = compute.status();
  } else if (auto end = (*compute)->make_mesh(rank()); !end) {
    outcome = end.status();
  } else {
    made = *std::move(end);
  }
  Offer offer;
  if (made != nullptr) offer = {1, made->member()};
  XYLEM_TRY(const auto offers, gather_from_all(*this, offer));
  const bool is_complete =
      std::ranges::all_of(offers, [](const Offer& each) { return each.has_member != 0; });
  if (is_complete) {
    std::vector<execution::MeshMember> members;
    members.reserve(offers.size());
    for (const Offer& each : offers) members.push_back(each.member);
    outcome = made->join(members);
  }
  XYLEM_TRY(const auto joined, gather_from_all(*this, std::uint64_t{outcome ? 1U : 0U}));
  const bool have_all_joined =
      std::ranges::all_of(joined, [](std::uint64_t each) { return each != 0; });
  if (!is_complete || !have_all_joined) return outcome;
  const auto measured = made->measure();
  // Also tells the others that this rank does not touch their scratch before their first call.
  XYLEM_TRY(const auto rates, gather_from_all(*this, measured ? *measured : 0.0));
  read_GBps = *std::ranges::min_element(rates);
  if (read_GBps > 0) mesh = std::move(made);
  return measured.status();
}

Result<bool> Group::bind(const Memory& device) {
  XYLEM_TRY(context_->process.check());
  if (spec_.is_companion) {
    return failure(Code::unsupported, "a companion has no devices: bind its communicator");
  }
  if (has_mesh_.load(std::memory_order_acquire)) {
    if (device == mesh_device_) return true;
    return failure(Code::invalid_argument,
                   fmt::format("the communicator is bound to {} device {}; duplicate it to bind "
                               "another",
                               name(mesh_device_.kind), mesh_device_.device));
  }
  std::shared_ptr<execution::Mesh> mesh;
  double read_GBps = 0;
  const Status outcome = join_mesh(device, mesh, read_GBps);
  if (mesh == nullptr) {
    // Ranks without a device, or with devices that do not reach each other, are no error.
    if (!outcome && outcome.code() != Code::unsupported) return outcome;
    context_->logger.info(
        fmt::format("{}: the CPU carries out calls on streams, since {}", label(),
                    outcome ? "another rank cannot be in a mesh" : outcome.message()));
    return false;
  }
  context_->progress.with_token([&] {
    plans_.set_mesh({.scratch_bytes = mesh->scratch_bytes(),
                     .is_direct = mesh->is_direct(),
                     .model = mesh_costs(read_GBps)});
    mesh_ = std::move(mesh);
    mesh_device_ = device;
    if (!is_well()) stop_mesh();
  });
  has_mesh_.store(true, std::memory_order_release);
  return true;
}

/// All ranks decide alike, except about where their buffers are and whether there is a stream. If
/// they disagree about that, their calls do not match.
bool Group::runs_on_mesh(const Call& call) const {
  if (!has_mesh_.load(std::memory_order_acquire) || call.kind != CallKind::collective) return false;
  // Its sizes are known to two ranks only, and so is the number of rounds.
  if (call.uneven && call.collective == collectives::Collective::all_to_all) return false;
  return plans_.may_use_mesh({call.collective, size(), call.root});
}

Work Group::submit_on_mesh(Call&& call) {
  const Stream stream = call.stream.value_or(Stream{});
  if (stream.device != mesh_device_) {
    return refused(failure(
        Code::invalid_argument,
        fmt::format("the stream is of {} device {}, and the communicator is bound to {} device {}; "
                    "use a stream of that device, or another communicator",
                    name(stream.device.kind), stream.device.device, name(mesh_device_.kind),
                    mesh_device_.device)));
  }
  call.on_mesh = true;
  auto plan = plans_.plan_for(call);
  Operation& operation = make_operation();
  Work work(operation);
  operation.call = std::move(call);
  place_on_device(operation);
  const std::lock_guard order(mesh_order_);
  operation.unplanned = plan.status();
  if (plan) {
    operation.plan = *std::move(plan);
    Status given = give_to_mesh(operation);
    if (given.code() == Code::cancelled) {
      operation.plan = nullptr;
      operation.unplanned = std::move(given);  // The group has failed, and launch() knows why.
    } else if (!given) {
      operation.end(std::move(given));
      operation.release();
      return work;
    }
  }
  begin(operation);
  return work;
}

/// Fails if the stream has got nothing. If it has got a part of the call, the group ends on all
/// ranks (start_collective()).
Status Group::give_to_mesh(Operation& operation) {
  const Call& call = operation.call;
  XYLEM_TRY(operation.enqueued, mesh_->enqueue(*operation.plan->stream_program,
                                               {.stream = call.stream.value_or(Stream{}).handle,
                                                .holds_stream = call.holds_stream,
                                                .input = static_cast<const std::byte*>(call.input),
                                                .output = static_cast<std::byte*>(call.output),
                                                .factor = call.op.factor}));
  operation.mesh = mesh_;
  Status given = operation.enqueued.broken;
  if (given && !operation.enqueued.is_captured) given = wait_for_stream(operation);
  if (!given) {
    operation.unplanned = std::move(given);
    operation.plan = nullptr;
  }
  return {};
}

/// Lets the operation begin when the stream has done the call.
Status Group::wait_for_stream(Operation& operation) {
  auto& placed = operation.run.device;
  const Deadline patience = Deadline::after(context_->config().timeout);
  for (;;) {
    auto gate = placed.compute->gate_after(operation.enqueued.stream);
    if (gate) {
      placed.gate = *gate;
      return {};
    }
    // All gates are taken: the program is thousands of calls ahead of the device.
    if (gate.status().code() != Code::exhausted || patience.passed()) return gate.status();
    context_->progress.poke();
    std::this_thread::yield();
  }
}

/// A forked child must not use the driver, so it never ends the mesh.
void Group::leave_mesh_to_parent() {
  if (mesh_ == nullptr) return;
  // NOLINTNEXTLINE(cppcoreguidelines-owning-memory)
  static auto& kept = *new std::vector<std::shared_ptr<execution::Mesh>>();
  kept.push_back(std::move(mesh_));
}

/// If the streams of this rank have done their calls, waits until those of the other ranks have,
/// too, and the operations have ended: to the caller these calls are over.
void Group::wait_for_mesh() {
  if (!has_mesh_.load(std::memory_order_acquire)) return;
  const Deadline patience = Deadline::after(context_->config().timeout);
  const auto is_pending = [this] {
    launch_all(context_->inbox);
    return pending() > 0 && mesh_->release();
  };
  while (context_->progress.with_token(is_pending) && !patience.passed()) {
    context_->progress.poke();
    std::this_thread::yield();
  }
}

/// Whether shared memory has shown that all members are on this host. The same on all of them.
bool Group::are_on_one_host() const {
  const Wires& wires = *context_->wires;
  return std::ranges::all_of(spec_.world_ranks, [&](std::uint32_t member) {
    return wires.same_host(spec_.own_world_rank(), member);
  });
}

/// Lets the streams go on that have calls of this group. For the token holder.
void Group::stop_mesh() {
  if (mesh_ == nullptr) return;
  mesh_->stop();
  context_->stopped_meshes.add(mesh_);
  context_->stopped_meshes.release();
}

}  // namespace xylem::runtime
