// SPDX-License-Identifier: Apache-2.0
//
// Calls that the devices carry out by themselves. The ranks of a group bind their devices; if these
// reach each other's memory, they form a mesh (execution/mesh.h), and calls on streams run there.
//
// Such a call is also an operation of the engine: a barrier, which begins when the stream has done
// the call. So all that holds for other calls holds for it, too: ranks that disagree about a call
// notice it, a rank that does not call is named, limits of time and deaths end the call. When it
// ends with an error, the mesh is stopped, and the streams go on.
#include "gather_from_all.h"
#include "group.h"

#include <fmt/format.h>

#include <algorithm>
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

/// What each rank tells the others about its seat.
struct Offer {
  std::uint64_t has_seat = 0;
  execution::MeshSeat seat;
};
static_assert(std::is_trivially_copyable_v<Offer>);

}  // namespace

/// Makes this rank's end of the mesh, joins those of the others, and measures how fast the slowest
/// device reads another's memory. Collective. `mesh` stays null if any rank cannot take part; the
/// Status then says why this rank cannot.
Status Group::sit_down(const Memory& device,
                       std::shared_ptr<execution::Mesh>& mesh,
                       double& read_GBps) {
  Status well;
  std::unique_ptr<execution::Mesh> made;
  if (device.kind == MemoryKind::host) {
    well = failure(Code::unsupported, "it has no device");
  } else if (auto compute = context_->devices.of(device); !compute) {
    well = compute.status();
  } else if (auto end = (*compute)->make_mesh(rank()); !end) {
    well = end.status();
  } else {
    made = *std::move(end);
  }
  Offer offer;
  if (made != nullptr) offer = {1, made->seat()};
  XYLEM_TRY(const auto offers, gather_from_all(*this, offer));
  const bool is_complete =
      std::ranges::all_of(offers, [](const Offer& each) { return each.has_seat != 0; });
  if (is_complete) {
    std::vector<execution::MeshSeat> seats;
    for (const Offer& each : offers) seats.push_back(each.seat);
    well = made->join(seats);
  }
  XYLEM_TRY(const auto joined, gather_from_all(*this, std::uint64_t{well ? 1U : 0U}));
  const bool are_all_well =
      std::ranges::all_of(joined, [](std::uint64_t each) { return each != 0; });
  if (!is_complete || !are_all_well) return well;
  const auto measured = made->measure();
  // Also tells the others that this rank does not touch their scratch before their first call.
  XYLEM_TRY(const auto rates, gather_from_all(*this, measured ? *measured : 0.0));
  read_GBps = *std::ranges::min_element(rates);
  if (read_GBps > 0) mesh = std::move(made);
  return measured.status();
}

Result<bool> Group::bind(const Memory& device) {
  XYLEM_TRY(context_->process.check());
  if (has_mesh_.load(std::memory_order_acquire)) {
    if (device == mesh_device_) return true;
    return failure(Code::invalid_argument,
                   fmt::format("the communicator is bound to {} device {}; duplicate it to bind "
                               "another",
                               name(mesh_device_.kind), mesh_device_.device));
  }
  std::shared_ptr<execution::Mesh> mesh;
  double read_GBps = 0;
  Status well = sit_down(device, mesh, read_GBps);
  if (mesh == nullptr) {
    // Ranks without a device, or with devices that do not reach each other, are no error.
    if (!well && well.code() != Code::unsupported) return well;
    context_->logger.info(
        fmt::format("communicator {}: the CPU carries out calls on streams, since {}", slot(),
                    well ? "another rank cannot be in a mesh" : well.message()));
    return false;
  }
  context_->progress.with_token([&] {
    plans_.set_mesh({.scratch_bytes = mesh->scratch_bytes(), .model = mesh_costs(read_GBps)});
    mesh_ = std::move(mesh);
    mesh_device_ = device;
    if (!health_) stop_mesh();
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
  if (call.stream->device != mesh_device_) {
    return refused(failure(
        Code::invalid_argument,
        fmt::format("the stream is of {} device {}, and the communicator is bound to {} device {}; "
                    "use a stream of that device, or another communicator",
                    name(call.stream->device.kind), call.stream->device.device,
                    name(mesh_device_.kind), mesh_device_.device)));
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
    operation.unplanned = give_to_mesh(operation);
    // Part of the call may be on its stream. start_collective() ends the group on all ranks.
    if (!operation.unplanned) operation.plan = nullptr;
  }
  begin(operation);
  return work;
}

Status Group::give_to_mesh(Operation& operation) {
  const Call& call = operation.call;
  operation.mesh = mesh_;
  XYLEM_TRY(operation.enqueued, mesh_->enqueue(*operation.plan->stream_program,
                                               {.stream = call.stream->handle,
                                                .holds_stream = call.holds_stream,
                                                .input = static_cast<const std::byte*>(call.input),
                                                .output = static_cast<std::byte*>(call.output),
                                                .factor = call.op.factor}));
  if (operation.enqueued.is_captured) return {};
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
  }
}

/// Lets the streams go on that have calls of this group. For the token holder.
void Group::stop_mesh() {
  if (mesh_ == nullptr) return;
  mesh_->stop();
  context_->stopped_meshes.add(mesh_);
}

}  // namespace xylem::runtime
