// SPDX-License-Identifier: Apache-2.0
#include "groups/group_mesh.h"

#include "xylem/base/keep.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace xylem::runtime {
namespace {

/// The first word of a note.
enum class NoteKind : std::uint64_t { offer, opened, proposal, message };

template <typename T>
struct Note {
  static_assert(std::is_trivially_copyable_v<T>);
  NoteKind kind = NoteKind::message;
  T value;
};

/// The value of a note, if it has this kind.
template <typename T>
std::optional<T> value_of(std::span<const std::byte> bytes, NoteKind kind) {
  Note<T> note;
  if (bytes.size() != sizeof note) return std::nullopt;
  std::memcpy(&note, bytes.data(), sizeof note);
  return note.kind == kind ? std::optional(note.value) : std::nullopt;
}

NoteKind kind_of(const MeshOffer&) { return NoteKind::offer; }
NoteKind kind_of(const MeshOpened&) { return NoteKind::opened; }
NoteKind kind_of(std::uint64_t /*proposal*/) { return NoteKind::proposal; }
NoteKind kind_of(const execution::MeshMessage&) { return NoteKind::message; }

/// At most this many meshes of a process are made by bind_later(), since each occupies memory of
/// its device.
constexpr std::uint32_t kMostLater = 16;

/// The elements of a list; empty if one is missing.
template <typename T>
std::vector<T> complete(const std::vector<std::optional<T>>& list) {
  std::vector<T> all;
  all.reserve(list.size());
  for (const auto& each : list) {
    if (!each) return {};
    all.push_back(*each);
  }
  return all;
}

bool moves_data(const Call& call) noexcept {
  const auto is_part = [](std::uint64_t count) { return count > 0; };
  return call.count > 0 || std::ranges::any_of(call.input_counts, is_part) ||
         std::ranges::any_of(call.output_counts, is_part);
}

}  // namespace

GroupMesh::~GroupMesh() {
  if (counts_as_own_) --context_.own_meshes;
  if (!context_.process.is_forked()) return;
  for (auto* const mesh : {&mesh_, &later_.joined.mesh}) {
    if (*mesh != nullptr) keep_until_exit(std::move(*mesh));
  }
}

/// Makes this rank's end of a mesh, and the offer to the other ranks. Joined::why is the reason if
/// this rank cannot take part.
GroupMesh::Joined GroupMesh::make_end(const Memory& device, MeshOffer& offer) const {
  Joined joined;
  Result<execution::Compute*> compute = failure(Code::unsupported, "this rank has no device");
  if (device.kind != MemoryKind::host) compute = context_.devices.of(device);
  joined.why = compute.status();
  offer.has_device = compute ? 1 : 0;
  if (!compute) return joined;
  if (!are_on_one_host()) {
    joined.why = failure(Code::unsupported, "its ranks are on several hosts");
    return joined;
  }
  auto end = (*compute)->make_mesh(spec_.rank);
  joined.why = end.status();
  if (!end) return joined;
  offer.has_member = 1;
  offer.member = (*end)->member();
  joined.mesh = *std::move(end);
  return joined;
}

/// Connects this rank's end of the mesh to those of the others, if all ranks have one.
MeshOpened GroupMesh::open(Joined& joined, const std::vector<MeshOffer>& offers) {
  MeshOpened opened;
  if (!std::ranges::all_of(offers, &MeshOffer::has_member)) return opened;
  std::vector<execution::MeshMember> members;
  members.reserve(offers.size());
  for (const MeshOffer& each : offers) members.push_back(each.member);
  const auto view = joined.mesh->join(members);
  joined.why = view.status();
  if (!view) return opened;
  opened.is_complete = 1;
  opened.view = *view;
  return opened;
}

/// True if the mesh has started: all ranks have opened the memory of all others.
bool GroupMesh::start(Joined& joined, const std::vector<MeshOpened>& opened) {
  if (!std::ranges::all_of(opened, &MeshOpened::is_complete)) {
    joined.mesh = nullptr;
    return false;
  }
  std::vector<execution::MeshView> views;
  views.reserve(opened.size());
  for (const MeshOpened& each : opened) views.push_back(each.view);
  joined.mesh->start(views);
  joined.binding = Binding::mesh;
  return true;
}

/// Tells the other ranks whether this rank has a device. If all have one, makes this rank's end of
/// the mesh and connects it to those of the others. Collective.
Result<GroupMesh::Joined> GroupMesh::join(const Memory& device, const Submit& submit) {
  const auto gather = [&](const auto& mine) { return gather_from_all(submit, spec_.size(), mine); };
  MeshOffer offer;
  Joined joined = make_end(device, offer);
  XYLEM_TRY(const auto offers, gather(offer));
  if (!std::ranges::all_of(offers, &MeshOffer::has_device)) {
    joined.mesh = nullptr;
    return joined;
  }
  joined.binding = Binding::same_memory;
  XYLEM_TRY(const auto opened, gather(open(joined, offers)));
  (void)start(joined, opened);
  return joined;
}

Result<Binding> GroupMesh::bind(const Memory& device, const Submit& submit) {
  XYLEM_TRY(context_.process.check());
  if (spec_.is_companion) {
    return failure(Code::unsupported, "a companion has no devices: bind its communicator");
  }
  if (switch_.is_counting()) {
    return failure(Code::invalid_argument,
                   "the communicator binds its devices by bind_later(); duplicate it to bind them "
                   "at once");
  }
  is_bound_ = true;
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
  if (joined.binding != Binding::none) {
    context_.progress.with_token([&](Token token) { set(token, device, joined); });
  }
  if (joined.binding != Binding::mesh) {
    log_missing(joined, is_usable ? LogLevel::info : LogLevel::warn);
  }
  return binding();
}

void GroupMesh::log_missing(const Joined& joined, LogLevel level) const {
  context_.logger.write(
      level, fmt::format("{}: the CPU carries out calls on streams, since {}", spec_.label(),
                         joined.why ? "another rank cannot be in a mesh" : joined.why.message()));
}

void GroupMesh::set(Token token, const Memory& device, Joined& joined) {
  std::optional<Plans::MeshSite> site;
  if (joined.mesh != nullptr) {
    site = {.staging_bytes = joined.mesh->staging_bytes(), .may_stage = joined.mesh->may_stage()};
  }
  plans_.set_devices(token, site);
  mesh_ = std::move(joined.mesh);
  device_ = device;
  if (mesh_ != nullptr && mesh_->may_stage()) hooks_.listen(token);
  for (const auto& [from, message] : std::exchange(early_, {})) handle(token, from, message);
  if (is_stopped_) stop(token);
  binding_.store(joined.binding, std::memory_order_release);
}

void GroupMesh::assume_devices(Token token) {
  if (!spec_.has_same_memory) return;
  plans_.set_devices(token, std::nullopt);
  binding_.store(Binding::same_memory, std::memory_order_release);
}

Result<Agreement> GroupMesh::agreement_on(const Call& call) {
  if (binding() == Binding::none || call.kind != CallKind::collective) return Agreement::none;
  if (call.stream) {
    XYLEM_TRY(const bool is_after, is_after_switch());
    const bool runs =
        is_after && exists() && plans_.may_use_mesh({call.collective, spec_.size(), call.root});
    if (runs) return Agreement::on_mesh;
  }
  if (!moves_data(call)) return Agreement::none;
  return call.memory.kind == MemoryKind::host ? Agreement::on_host : Agreement::on_devices;
}

// ---- bind_later() ----

/// Numbers a call on a stream. Whether it runs on the mesh, if there is one.
Result<bool> GroupMesh::is_after_switch() {
  if (!switch_.is_counting()) return true;
  const std::uint64_t number = switch_.number_call();
  const Deadline patience = Deadline::after(spec_.timeout);
  for (;;) {
    if (const auto is_on_mesh = switch_.is_on_mesh(number)) return *is_on_mesh;
    XYLEM_TRY(context_.process.check());
    if (patience.passed()) {
      return failure(Code::timed_out, "some rank has not agreed on the mesh of bind_later()");
    }
    context_.progress.poke();
    std::this_thread::yield();
  }
}

Status GroupMesh::bind_later(const Memory& device) {
  XYLEM_TRY(context_.process.check());
  if (spec_.is_companion || is_bound_ || device.kind == MemoryKind::host) return {};
  const Lock one_at_a_time(later_mutex_);
  if (switch_.is_counting()) {
    if (device == later_device_) return {};
    return failure(Code::invalid_argument,
                   fmt::format("the communicator is bound to {} device {}, and not to device {}",
                               name(device.kind), later_device_.device, device.device));
  }
  if (binding() != Binding::same_memory) {
    return failure(Code::invalid_argument,
                   "bind_later() needs a communicator that begins with the binding same_memory");
  }
  XYLEM_TRY(context_.devices.of(device));
  later_device_ = device;
  switch_.begin();
  if (spec_.size() == 1 || !are_on_one_host()) {
    switch_.decide(MeshSwitch::kNever);
    return {};
  }
  context_.progress.with_token([this](Token token) {
    hooks_.listen(token);
    hooks_.hasten(token, true);
  });
  in_background([this] { offer_later(); });
  return {};
}

/// Runs a task in the background, unless the group is destroyed before. If no thread can be
/// started, there is no mesh, or peers do not get an answer, so that they use staging memory.
void GroupMesh::in_background(std::function<void()> task) const {
  const Status posted = context_.background.post([task = std::move(task), hold = hooks_.hold] {
    if (const auto group = hold()) task();
  });
  if (!posted) context_.logger.warn(posted.message());
}

template <typename T>
void GroupMesh::send_to_all(Token token, const T& value) {
  const Note<T> note{kind_of(value), value};
  for (std::uint32_t to = 0; to < spec_.size(); ++to) {
    if (to != spec_.rank) hooks_.send(token, to, std::as_bytes(std::span(&note, 1)));
  }
}

/// Makes this rank's end of the mesh, in the background, and sends the offer.
void GroupMesh::offer_later() {
  MeshOffer offer;
  Joined joined;
  const bool may_have_one = context_.own_meshes.fetch_add(1) < kMostLater;
  if (may_have_one) {
    joined = make_end(later_device_, offer);
  } else {
    --context_.own_meshes;
    joined.why = failure(Code::unsupported,
                         fmt::format("{} communicators of this process have a mesh, which occupies "
                                     "memory; bind the communicator to get another",
                                     kMostLater));
  }
  context_.progress.with_token([&](Token token) {
    counts_as_own_ = may_have_one;
    later_.joined = std::move(joined);
    send_to_all(token, offer);
    on_offer(token, spec_.rank, offer);
  });
}

void GroupMesh::on_offer(Token token, std::uint32_t from, const MeshOffer& offer) {
  if (!note(later_.offers, from, offer)) return;
  auto offers = complete(later_.offers);
  if (offers.empty()) return;
  if (!std::ranges::all_of(offers, &MeshOffer::has_member)) {
    return decide(token, MeshSwitch::kNever);
  }
  in_background([this, offers = std::move(offers)] { open_later(offers); });
}

/// Opens the memory of the other ranks, in the background.
void GroupMesh::open_later(const std::vector<MeshOffer>& offers) {
  const MeshOpened opened = open(later_.joined, offers);
  context_.progress.with_token([&](Token token) {
    send_to_all(token, opened);
    on_opened(token, spec_.rank, opened);
  });
}

/// When all ranks have opened the memory of the others, proposes the first call on the mesh. So a
/// call that waits for the proposals of other ranks waits for no driver.
void GroupMesh::on_opened(Token token, std::uint32_t from, const MeshOpened& opened) {
  if (!note(later_.opened, from, opened)) return;
  const auto all = complete(later_.opened);
  if (all.empty()) return;
  if (!start(later_.joined, all)) return decide(token, MeshSwitch::kNever);
  const std::uint64_t proposal = switch_.propose();
  send_to_all(token, proposal);
  on_proposal(token, spec_.rank, proposal);
}

void GroupMesh::on_proposal(Token token, std::uint32_t from, std::uint64_t proposal) {
  if (!note(later_.proposals, from, proposal)) return;
  const auto all = complete(later_.proposals);
  if (all.empty() || later_.joined.binding != Binding::mesh) return;
  set(token, later_device_, later_.joined);
  decide(token, *std::ranges::max_element(all));
}

/// Notes a value of a rank, in a list by ranks. False if bind_later() has ended, or if the list
/// already has a value of the rank.
template <typename T>
bool GroupMesh::note(std::vector<std::optional<T>>& list, std::uint32_t from, const T& value) {
  list.resize(spec_.size());
  if (switch_.is_decided() || list[from]) return false;
  list[from] = value;
  return true;
}

/// Ends bind_later().
void GroupMesh::decide(Token token, std::uint64_t first) {
  switch_.decide(first);
  hooks_.hasten(token, false);
  if (first != MeshSwitch::kNever) return;
  if (std::exchange(counts_as_own_, false)) --context_.own_meshes;
  // Logged once as a warning: most groups of a program lack a mesh for the same reason.
  const bool warns = !later_.joined.why && !context_.has_no_mesh.exchange(true);
  log_missing(later_.joined, warns ? LogLevel::warn : LogLevel::info);
  later_ = {};
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

/// Enqueues a call. Blocks while too many streams or calls of meshes wait on the device, and for
/// kMostOpening at most while peers open the buffers of a call that is captured.
Result<execution::Enqueued> GroupMesh::enqueue_when_possible(const Operation& operation) {
  const Call& call = operation.call;
  constexpr std::chrono::nanoseconds kMostOpening = std::chrono::seconds(2);
  const std::chrono::nanoseconds timeout = context_.config().timeout;
  const Deadline patience = Deadline::after(timeout);
  // Without a progress thread, nobody would exchange messages with the peers meanwhile.
  const bool may_wait = context_.config().progress_thread;
  const Deadline opening =
      Deadline::after(may_wait ? std::min(kMostOpening, timeout / 2) : timeout * 0);
  for (;;) {
    auto enqueued = mesh_->enqueue(*operation.plan->stream_program,
                                   {.stream = call.stream.value_or(Stream{}).handle,
                                    .holds_stream = call.holds_stream,
                                    .input = static_cast<const std::byte*>(call.input),
                                    .output = static_cast<std::byte*>(call.output),
                                    .factor = call.op.factor,
                                    .waits_for_peers = !opening.passed()});
    if (enqueued || enqueued.status().code() != Code::busy || patience.passed()) return enqueued;
    // Each attempt calls the driver, which other threads need to end calls.
    constexpr std::chrono::microseconds kBetween{50};
    if (mesh_->has_posts()) {
      context_.progress.with_token([this](Token token) { send_posts(token); });
    }
    context_.progress.poke();
    std::this_thread::sleep_for(kBetween);
  }
}

void GroupMesh::send_posts(Token token) {
  if (mesh_ == nullptr || !mesh_->has_posts()) return;
  for (const auto& [to, message] : mesh_->take_posts()) {
    const Note<execution::MeshMessage> note{kind_of(message), message};
    hooks_.send(token, to, std::as_bytes(std::span(&note, 1)));
  }
}

void GroupMesh::on_note(Token token, std::uint32_t from, std::span<const std::byte> bytes) {
  if (from == spec_.rank) return;
  if (const auto offer = value_of<MeshOffer>(bytes, NoteKind::offer)) {
    on_offer(token, from, *offer);
  } else if (const auto opened = value_of<MeshOpened>(bytes, NoteKind::opened)) {
    on_opened(token, from, *opened);
  } else if (const auto proposal = value_of<std::uint64_t>(bytes, NoteKind::proposal)) {
    on_proposal(token, from, *proposal);
  } else if (const auto message = value_of<execution::MeshMessage>(bytes, NoteKind::message)) {
    handle(token, from, *message);
  }
}

/// Handles a message of the mesh, in the background: opening memory may take long.
void GroupMesh::handle(Token /*token*/, std::uint32_t from, const execution::MeshMessage& message) {
  if (mesh_ == nullptr) return early_.emplace_back(from, message), void();
  if (message.kind == execution::MeshMessage::Kind::opened && message.address == 0) {
    context_.logger.write(LogLevel::info,
                          fmt::format("{}: the GPU of rank {} cannot access an allocation of this "
                                      "rank, so calls copy their buffers there",
                                      spec_.label(), spec_.world_ranks[from]));
  }
  in_background([this, mesh = mesh_, from, message] {
    mesh->on_message(from, message);
    context_.progress.with_token([this](Token token) { send_posts(token); });
  });
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
  switch_.decide(MeshSwitch::kNever);
  if (mesh_ == nullptr) return;
  mesh_->stop();
  context_.stopped_meshes.add(token, mesh_);
  context_.stopped_meshes.turn(token);
}

}  // namespace xylem::runtime
