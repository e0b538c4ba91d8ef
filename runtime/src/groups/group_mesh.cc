// SPDX-License-Identifier: Apache-2.0
#include "groups/group_mesh.h"

#include "xylem/base/keep.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace xylem::runtime {
namespace {

/// The costs of a mesh whose devices read each other's memory at this rate. The other costs are
/// assumed for every device: they only decide between mapped_one_shot and mapped_two_shot.
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

/// What each rank sends to the others about its end of the mesh, if it has one.
struct Offer {
  std::uint64_t has_member = 0;
  execution::MeshMember member;
};
static_assert(std::is_trivially_copyable_v<Offer>);

}  // namespace

GroupMesh::~GroupMesh() {
  if (mesh_ != nullptr && context_.process.is_forked()) keep_until_exit(std::move(mesh_));
}

/// This rank's end of the mesh, or the reason why this rank cannot take part.
Result<std::unique_ptr<execution::Mesh>> GroupMesh::make_end(const Memory& device) const {
  if (device.kind == MemoryKind::host) {
    return failure(Code::unsupported, "this rank has no device");
  }
  if (!are_on_one_host()) return failure(Code::unsupported, "its ranks are on several hosts");
  XYLEM_TRY(auto* const compute, context_.devices.of(device));
  return compute->make_mesh(spec_.rank);
}

/// Makes this rank's end of the mesh, connects it to those of the others, and measures how fast the
/// slowest device reads another's memory. Collective. `mesh` stays null if any rank cannot take
/// part. If this rank cannot, the Status says why; it is OK if only other ranks cannot.
Status GroupMesh::join(const Memory& device,
                       const Submit& submit,
                       std::shared_ptr<execution::Mesh>& mesh,
                       double& read_GBps) {
  const auto gather = [&](const auto& mine) { return gather_from_all(submit, spec_.size(), mine); };
  auto end = make_end(device);
  Status outcome = end.status();
  Offer offer;
  if (end) offer = {1, (*end)->member()};
  XYLEM_TRY(const auto offers, gather(offer));
  const bool is_complete =
      std::ranges::all_of(offers, [](const Offer& each) { return each.has_member != 0; });
  if (is_complete) {
    std::vector<execution::MeshMember> members;
    members.reserve(offers.size());
    for (const Offer& each : offers) members.push_back(each.member);
    outcome = (*end)->join(members);
  }
  XYLEM_TRY(const auto joined, gather(std::uint64_t{outcome ? 1U : 0U}));
  const bool have_all_joined =
      std::ranges::all_of(joined, [](std::uint64_t each) { return each != 0; });
  if (!is_complete || !have_all_joined) return outcome;
  const auto measured = (*end)->measure();
  // This gather is also a barrier: when it has ended, the measure() of every rank has ended, too,
  // and does not use the scratch of this rank. So calls may begin.
  XYLEM_TRY(const auto rates, gather(measured ? *measured : 0.0));
  read_GBps = *std::ranges::min_element(rates);
  if (read_GBps > 0) mesh = *std::move(end);
  return measured.status();
}

Result<bool> GroupMesh::bind(const Memory& device, const Submit& submit) {
  XYLEM_TRY(context_.process.check());
  if (spec_.is_companion) {
    return failure(Code::unsupported, "a companion has no devices: bind its communicator");
  }
  if (exists()) {
    if (device == device_) return true;
    return failure(Code::invalid_argument,
                   fmt::format("the communicator is bound to {} device {}; duplicate it to bind "
                               "another",
                               name(device_.kind), device_.device));
  }
  std::shared_ptr<execution::Mesh> mesh;
  double read_GBps = 0;
  const Status outcome = join(device, submit, mesh, read_GBps);
  if (mesh == nullptr) {
    // Ranks without a device, or with devices that do not reach each other, are no error.
    if (!outcome && outcome.code() != Code::unsupported) return outcome;
    context_.logger.info(
        fmt::format("{}: the CPU carries out calls on streams, since {}", spec_.label(),
                    outcome ? "another rank cannot be in a mesh" : outcome.message()));
    return false;
  }
  context_.progress.with_token([&](Token token) {
    plans_.set_mesh(token, {.scratch_bytes = mesh->scratch_bytes(),
                            .is_direct = mesh->is_direct(),
                            .model = mesh_costs(read_GBps)});
    mesh_ = std::move(mesh);
    device_ = device;
    if (is_stopped_) stop(token);
  });
  exists_.store(true, std::memory_order_release);
  return true;
}

bool GroupMesh::runs(const Call& call) const {
  if (!exists() || call.kind != CallKind::collective) return false;
  // In an all_to_all_v, only the sender and the receiver know the size of a part, so the ranks
  // cannot agree on the number of rounds.
  if (call.is_uneven() && call.collective == collectives::Collective::all_to_all) return false;
  return plans_.may_use_mesh({call.collective, spec_.size(), call.root});
}

Status GroupMesh::check(const Stream& stream) const {
  if (stream.device == device_) return {};
  return failure(
      Code::invalid_argument,
      fmt::format("the stream is of {} device {}, and the communicator is bound to {} device {}; "
                  "use a stream of that device, or another communicator",
                  name(stream.device.kind), stream.device.device, name(device_.kind),
                  device_.device));
}

void GroupMesh::start(Operation& operation, Result<std::shared_ptr<Plan>> plan) {
  const Lock order(order_);
  operation.unplanned = plan.status();
  if (plan) {
    operation.plan = *std::move(plan);
    Status enqueued = enqueue(operation);
    if (enqueued.code() == Code::cancelled) {
      operation.plan = nullptr;
      operation.unplanned = std::move(enqueued);  // The group has failed already.
    } else if (!enqueued) {
      operation.end(std::move(enqueued));
      return operation.release();
    }
  }
  context_.scheduler.start(operation);
}

/// Fails if nothing has been enqueued on the stream. If only a part of the call has been enqueued,
/// the operation starts without a plan, and the group fails on all ranks (Collectives::start).
Status GroupMesh::enqueue(Operation& operation) {
  const Call& call = operation.call;
  XYLEM_TRY(operation.enqueued, mesh_->enqueue(*operation.plan->stream_program,
                                               {.stream = call.stream.value_or(Stream{}).handle,
                                                .holds_stream = call.holds_stream,
                                                .input = static_cast<const std::byte*>(call.input),
                                                .output = static_cast<std::byte*>(call.output),
                                                .factor = call.op.factor}));
  operation.mesh = mesh_;
  Status enqueued = operation.enqueued.broken;
  if (enqueued && !operation.enqueued.is_captured) enqueued = await_stream(operation);
  if (!enqueued) {
    operation.unplanned = std::move(enqueued);
    operation.plan = nullptr;
  }
  return {};
}

/// Makes the operation begin when the stream has completed the call.
Status GroupMesh::await_stream(Operation& operation) {
  auto& placed = operation.run.device;
  const Deadline patience = Deadline::after(context_.config().timeout);
  for (;;) {
    auto gate = placed.compute->gate_after(operation.enqueued.stream);
    if (gate) {
      placed.gate = *gate;
      return {};
    }
    // All gates are in use: the application has enqueued thousands of calls that the device has not
    // run yet.
    if (gate.status().code() != Code::exhausted || patience.passed()) return gate.status();
    context_.progress.poke();
    std::this_thread::yield();
  }
}

void GroupMesh::drain(const std::function<std::uint32_t(Token)>& pending) {
  if (!exists()) return;
  const Deadline patience = Deadline::after(context_.config().timeout);
  const auto is_pending = [&](Token token) {
    context_.scheduler.launch_submitted(token);
    return pending(token) > 0 && mesh_->release();
  };
  while (context_.progress.with_token(is_pending) && !patience.passed()) {
    context_.progress.poke();
    std::this_thread::yield();
  }
}

/// Whether all members are on this rank's host. The result is the same on all members.
bool GroupMesh::are_on_one_host() const {
  const Hosts& hosts = context_.wires->hosts();
  return std::ranges::all_of(spec_.world_ranks, [&](std::uint32_t member) {
    return hosts.are_together(spec_.own_world_rank(), member);
  });
}

void GroupMesh::stop(Token token) {
  is_stopped_ = true;
  if (mesh_ == nullptr) return;
  mesh_->stop();
  context_.stopped_meshes.add(token, mesh_);
  context_.stopped_meshes.turn(token);
}

}  // namespace xylem::runtime
