// SPDX-License-Identifier: Apache-2.0
#include "groups/group_mesh.h"

#include "xylem/base/keep.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace xylem::runtime {
namespace {

/// What each rank sends to the others about its device, and about its end of the mesh, if it has
/// these.
struct Offer {
  std::uint32_t has_device = 0, has_member = 0;
  execution::MeshMember member;
};
static_assert(std::is_trivially_copyable_v<Offer>);

/// What each rank sends to the others when it has opened their memory, or has failed to.
struct Opened {
  std::uint32_t is_complete = 0;
  execution::MeshView view{};
};
static_assert(std::is_trivially_copyable_v<Opened>);

bool moves_data(const Call& call) noexcept {
  const auto is_part = [](std::uint64_t count) { return count > 0; };
  return call.count > 0 || std::ranges::any_of(call.input_counts, is_part) ||
         std::ranges::any_of(call.output_counts, is_part);
}

}  // namespace

GroupMesh::~GroupMesh() {
  if (mesh_ != nullptr && context_.process.is_forked()) keep_until_exit(std::move(mesh_));
}

/// This rank's end of the mesh, or the reason why this rank cannot take part.
Result<std::unique_ptr<execution::Mesh>> GroupMesh::make_end(execution::Compute& device) const {
  if (!are_on_one_host()) return failure(Code::unsupported, "its ranks are on several hosts");
  return device.make_mesh(spec_.rank);
}

/// Tells the other ranks whether this rank has a device. If all have one, makes this rank's end of
/// the mesh and connects it to those of the others. Collective.
Result<GroupMesh::Joined> GroupMesh::join(const Memory& device, const Submit& submit) const {
  const auto gather = [&](const auto& mine) { return gather_from_all(submit, spec_.size(), mine); };
  Result<execution::Compute*> compute = failure(Code::unsupported, "this rank has no device");
  if (device.kind != MemoryKind::host) compute = context_.devices.of(device);
  auto end = compute ? make_end(**compute) : compute.status();
  Joined joined;
  joined.why = end.status();
  Offer offer;
  offer.has_device = compute ? 1 : 0;
  offer.has_member = end ? 1 : 0;
  if (end) offer.member = (*end)->member();
  XYLEM_TRY(const auto offers, gather(offer));
  if (!std::ranges::all_of(offers, &Offer::has_device)) return joined;
  joined.binding = Binding::same_memory;
  Opened opened;
  if (std::ranges::all_of(offers, &Offer::has_member)) {
    std::vector<execution::MeshMember> members;
    members.reserve(offers.size());
    for (const Offer& each : offers) members.push_back(each.member);
    auto view = (*end)->join(members);
    joined.why = view.status();
    if (view) opened = {.is_complete = 1, .view = *view};
  }
  XYLEM_TRY(const auto all_opened, gather(opened));
  if (!std::ranges::all_of(all_opened, &Opened::is_complete)) return joined;
  std::vector<execution::MeshView> views;
  views.reserve(all_opened.size());
  for (const Opened& each : all_opened) views.push_back(each.view);
  (*end)->start(views);
  joined.binding = Binding::mesh;
  joined.mesh = *std::move(end);
  return joined;
}

Result<Binding> GroupMesh::bind(const Memory& device, const Submit& submit) {
  XYLEM_TRY(context_.process.check());
  if (spec_.is_companion) {
    return failure(Code::unsupported, "a companion has no devices: bind its communicator");
  }
  if (exists()) {
    if (device == device_) return Binding::mesh;
    return failure(Code::invalid_argument,
                   fmt::format("the communicator is bound to {} device {}; duplicate it to bind "
                               "another",
                               name(device_.kind), device_.device));
  }
  XYLEM_TRY(auto joined, join(device, submit));
  // A rank without a device is no error.
  const bool is_usable = joined.why || joined.why.code() == Code::unsupported;
  if (joined.binding == Binding::none && !is_usable) return joined.why;
  if (joined.binding != Binding::none) set(device, joined);
  if (joined.binding != Binding::mesh) {
    context_.logger.write(
        is_usable ? LogLevel::info : LogLevel::warn,
        fmt::format("{}: the CPU carries out calls on streams, since {}", spec_.label(),
                    joined.why ? "another rank cannot be in a mesh" : joined.why.message()));
  }
  return binding();
}

void GroupMesh::set(const Memory& device, Joined& joined) {
  context_.progress.with_token([&](Token token) {
    std::optional<Plans::MeshSite> site;
    if (joined.mesh != nullptr) {
      site = {.staging_bytes = joined.mesh->staging_bytes(), .may_stage = joined.mesh->may_stage()};
    }
    plans_.set_devices(token, site);
    mesh_ = std::move(joined.mesh);
    device_ = device;
    for (const auto& handle : std::exchange(early_, {})) handle(token);
    if (is_stopped_) stop(token);
  });
  binding_.store(joined.binding, std::memory_order_release);
}

void GroupMesh::assume_devices(Token token) {
  if (!spec_.has_same_memory) return;
  plans_.set_devices(token, std::nullopt);
  binding_.store(Binding::same_memory, std::memory_order_release);
}

bool GroupMesh::runs(const Call& call) const {
  return exists() && call.stream && plans_.may_use_mesh({call.collective, spec_.size(), call.root});
}

Agreement GroupMesh::agreement_on(const Call& call) const {
  if (binding() == Binding::none || call.kind != CallKind::collective) return Agreement::none;
  if (runs(call)) return Agreement::on_mesh;
  if (!moves_data(call)) return Agreement::none;
  return call.memory.kind == MemoryKind::host ? Agreement::on_host : Agreement::on_devices;
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
  XYLEM_TRY(operation.enqueued, enqueue_when_possible(operation));
  operation.mesh = mesh_;
  operation.run.device.gate = operation.enqueued.end;
  if (!operation.enqueued.broken) {
    operation.unplanned = operation.enqueued.broken;
    operation.plan = nullptr;
  }
  return {};
}

/// Enqueues a call. Blocks while too many streams or calls of meshes wait on the device.
Result<execution::Enqueued> GroupMesh::enqueue_when_possible(const Operation& operation) const {
  const Call& call = operation.call;
  const Deadline patience = Deadline::after(context_.config().timeout);
  for (;;) {
    auto enqueued = mesh_->enqueue(*operation.plan->stream_program,
                                   {.stream = call.stream.value_or(Stream{}).handle,
                                    .holds_stream = call.holds_stream,
                                    .input = static_cast<const std::byte*>(call.input),
                                    .output = static_cast<std::byte*>(call.output),
                                    .factor = call.op.factor});
    if (enqueued || enqueued.status().code() != Code::busy || patience.passed()) return enqueued;
    // Each attempt calls the driver, which other threads need to end calls.
    constexpr std::chrono::microseconds kBetween{50};
    context_.progress.poke();
    std::this_thread::sleep_for(kBetween);
  }
}

void GroupMesh::on_message(Token /*token*/,
                           std::uint32_t from,
                           const execution::MeshMessage& message,
                           std::function<void()> send) {
  if (mesh_ == nullptr) {
    early_.emplace_back([this, from, message, send = std::move(send)](Token later) {
      on_message(later, from, message, send);
    });
    return;
  }
  if (message.kind == execution::MeshMessage::Kind::opened && message.address == 0) {
    context_.logger.write(LogLevel::info,
                          fmt::format("{}: the GPU of rank {} cannot access an allocation of this "
                                      "rank, so calls copy their buffers there",
                                      spec_.label(), spec_.world_ranks[from]));
  }
  const auto handle = [mesh = mesh_, from, message, send = std::move(send)] {
    mesh->on_message(from, message);
    send();
  };
  if (context_.background.post(handle)) return;
  mesh_->on_message(from, message);  // There is no thread. The answer is sent with the next call.
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
