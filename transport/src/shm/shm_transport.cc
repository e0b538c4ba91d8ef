// SPDX-License-Identifier: Apache-2.0
#include "shm/shm_transport.h"

#include "shm/delays.h"
#include "xylem/base/check.h"
#include "xylem/base/clock.h"
#include "xylem/base/copy.h"
#include "xylem/base/hash.h"

#include <fmt/format.h>

#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace xylem::transport::shm {
namespace {

constexpr std::uint64_t kAddressMagic = 0x78796c656d2d7368;  // "xylem-sh"
/// How many calls of progress() without any work pass between two looks at the door.
constexpr std::uint32_t kRoundsPerLook = 64;
/// View::id of a message that arrived before it was asked for.
constexpr std::uint64_t kLent = ~std::uint64_t{0};

using AddressWords = std::array<std::uint64_t, 4>;

std::uint64_t check_of(const AddressWords& words) noexcept {
  return combine(combine(words[0], words[1]), words[2]);
}

Status system_error(std::string_view what) {
  return failure(Code::exhausted, fmt::format("shared memory: {}: {}", what, std::strerror(errno)));
}

}  // namespace

void Owner::ring() const noexcept {
  const std::uint64_t one = 1;
  // This fails only if the counter is full, and then the descriptor is readable anyway.
  [[maybe_unused]] const auto written = ::write(wake_, &one, sizeof one);
}

Result<std::unique_ptr<Transport>> ShmTransport::make(const ShmOptions& options,
                                                      const Logger& logger) {
  XYLEM_TRY(const Geometry geometry, plan_geometry(options.endpoints, options.bytes));
  Nonce nonce{};
  if (getrandom(nonce.data(), sizeof nonce, 0) != sizeof nonce) return system_error("getrandom");
  XYLEM_TRY(Segment segment, Segment::create(geometry, nonce));
  XYLEM_TRY(Door door, Door::open(nonce));
  UniqueFd wake(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!wake) return system_error("eventfd");
  UniqueFd events(::epoll_create1(EPOLL_CLOEXEC));
  if (!events) return system_error("epoll");
  for (const int fd : {wake.get(), door.fd()}) {
    epoll_event event{};
    event.events = EPOLLIN;
    if (epoll_ctl(events.get(), EPOLL_CTL_ADD, fd, &event) != 0) return system_error("epoll");
  }
  return std::unique_ptr<Transport>(new ShmTransport(
      std::move(segment), std::move(door), std::move(wake), std::move(events), options, logger));
}

ShmTransport::ShmTransport(Segment segment,
                           Door door,
                           UniqueFd wake,
                           UniqueFd events,
                           const ShmOptions& options,
                           Logger logger)
    : segment_(std::move(segment)),
      slots_(segment_.geometry()),
      door_(std::move(door)),
      wake_(std::move(wake)),
      events_(std::move(events)),
      writes_(options.writes),
      devices_(options.devices),
      logger_(std::move(logger)) {
  const Nonce& nonce = segment_.header().nonce;
  AddressWords words{kAddressMagic, nonce[0], nonce[1], 0};
  words[3] = check_of(words);
  std::memcpy(address_.data(), words.data(), sizeof words);
  if (devices_ != nullptr) devices_->lend_host(segment_.memory(), segment_.bytes());
}

// Messages that peers have not read yet stay in the memory that they have mapped.
ShmTransport::~ShmTransport() {
  const bool is_written = devices_ != nullptr && !take_back_segment();
  for (Source& source : sources_) source.incoming.settle();
  segment_.header().state.store(OwnerState::gone, std::memory_order_release);
  for (const Peer& peer : peers_) peer.owner().ring();
  if (is_written) segment_.leave_mapped();
}

/// Waits until no device writes into the segment. False if a device has not ended after seconds:
/// then the segment has to stay mapped.
bool ShmTransport::take_back_segment() noexcept {
  const Deadline patience = Deadline::after(std::chrono::seconds(5));
  while (waits_for_device() && !patience.passed()) {
    for (Endpoint& endpoint : endpoints_) endpoint.outgoing.pump();
    sched_yield();
  }
  // To take it back waits for the device, too.
  if (waits_for_device()) return false;
  devices_->take_back_host(segment_.memory());
  return true;
}

bool ShmTransport::waits_for_device() const noexcept {
  return std::ranges::any_of(
      endpoints_, [](const Endpoint& endpoint) { return endpoint.outgoing.is_copying(); });
}

Result<EndpointId> ShmTransport::connect(std::span<const std::byte> address) {
  AddressWords words{};
  if (address.size() == sizeof words) std::memcpy(words.data(), address.data(), sizeof words);
  if (address.size() != sizeof words || words[0] != kAddressMagic || words[3] != check_of(words)) {
    return failure(Code::invalid_argument,
                   "not an address of shared memory: pass what address() returned");
  }
  if (endpoints_.size() == segment_.geometry().channels) {
    return failure(Code::exhausted, fmt::format("shared memory was made for {} endpoints: make it "
                                                "for more endpoints",
                                                endpoints_.size()));
  }
  const auto id = static_cast<EndpointId>(endpoints_.size());
  endpoints_.push_back({{words[1], words[2]},
                        Outgoing(id, segment_, slots_, outcomes_, CacheChoice(writes_), devices_)});
  ++unmet_;
  call(id);
  return id;
}

// ---- messages ----

Posted ShmTransport::send(EndpointId to,
                          Tag tag,
                          ConstRegion source,
                          Operation& operation) noexcept {
  XYLEM_CHECK(to < endpoints_.size(), to, endpoints_.size());
  XYLEM_CHECK(source.memory.kind == MemoryKind::host || devices_ != nullptr,
              xylem::name(source.memory.kind));
  Endpoint& endpoint = endpoints_[to];
  endpoint.bytes_sent += source.bytes;
  Outbound message{static_cast<const std::byte*>(source.data), source.bytes, source.memory};
  if (source.memory.kind == MemoryKind::host) {
    message.location = locate(endpoint, source);
  } else if (devices_->share(source, message.place)) {
    message.location.where = Location::Where::device;
  }
  return endpoint.outgoing.send(tag, message, operation);
}

bool ShmTransport::send_inline(EndpointId to,
                               Tag tag,
                               const void* data,
                               std::uint64_t bytes) noexcept {
  Endpoint& endpoint = endpoints_[to];
  if (!endpoint.outgoing.send_inline(tag, static_cast<const std::byte*>(data), bytes)) return false;
  endpoint.bytes_sent += bytes;
  return true;
}

void ShmTransport::close(EndpointId id) noexcept {
  XYLEM_CHECK(id < endpoints_.size(), id, endpoints_.size());
  Endpoint& endpoint = endpoints_[id];
  endpoint.outgoing.close(endpoint.has_called);
  stop_waiting(endpoint);
  const auto is_open = [&](const Endpoint& other) {
    return other.nonce == endpoint.nonce && other.outgoing.is_open();
  };
  if (std::ranges::any_of(endpoints_, is_open)) return;
  for (Source& source : sources_) {
    if (source.peer->nonce == endpoint.nonce) source.incoming.give_up();
  }
}

bool ShmTransport::flush(EndpointId id) noexcept {
  const Endpoint& endpoint = endpoints_[id];
  const bool is_on_its_way = endpoint.has_called || !endpoint.outgoing.is_open();
  return is_on_its_way && endpoint.outgoing.is_flushed();
}

Posted ShmTransport::recv(
    Tag tag, Tag mask, Region target, Operation& operation, Tag* sender_tag) noexcept {
  XYLEM_CHECK(target.memory.kind == MemoryKind::host, xylem::name(target.memory.kind));
  return take({tag, mask, target, &operation, sender_tag}, matcher_.find_arrived(tag, mask));
}

/// Posts a receive, or lets it take the message that has arrived for it.
Posted ShmTransport::take(const Receive& receive, Arrived* arrived) noexcept {
  Operation& operation = *receive.operation;
  operation.state = nullptr;
  if (arrived == nullptr) {
    matcher_.post(receive);
    if (held_ > 0) want(receive);
    return Posted::pending;
  }
  if (arrived->is_stream) {
    const StreamId stream = arrived->stream;
    matcher_.drop(*arrived);
    sources_[stream.channel].incoming.meet(static_cast<std::uint8_t>(stream.id), receive);
    return Posted::pending;
  }
  const Outcome outcome = copy_out(receive, arrived->tag, arrived->payload.data(), arrived->bytes);
  matcher_.drop(*arrived);
  operation.code = outcome.code;
  operation.bytes = outcome.bytes;
  return Posted::done;
}

Posted ShmTransport::recv_view(Tag tag,
                               Region target,
                               Operation& operation,
                               Memory reader) noexcept {
  const Receive receive{tag, kExactMatch, target, &operation, nullptr, true, reader};
  Arrived* arrived = matcher_.find_arrived(tag, kExactMatch);
  if (arrived == nullptr || arrived->is_stream || !receive.wants_host_view()) {
    return take(receive, arrived);
  }
  operation.state = nullptr;
  operation.code = Code::ok;
  operation.bytes = arrived->bytes;
  operation.view = {arrived->payload.data(), kLent};
  matcher_.lend(*arrived);
  return Posted::done;
}

bool ShmTransport::take_view(EndpointId from, Tag tag, std::uint64_t bytes, View& view) noexcept {
  Endpoint& endpoint = endpoints_[from];
  if (endpoint.back == nullptr) {
    const auto comes_from = [&](const Source& source) {
      return source.peer->nonce == endpoint.nonce;
    };
    const auto back = std::ranges::find_if(sources_, comes_from);
    if (back == sources_.end()) return false;
    endpoint.back = &back->incoming;
  }
  return endpoint.back->take_view(tag, bytes, view);
}

bool ShmTransport::release(const View& view) noexcept {
  if (view.id == kLent) {
    matcher_.take_back(view.data);
    return true;
  }
  const ViewPlace place = unpack(view.id);
  return sources_[place.channel].incoming.release(place);
}

Room ShmTransport::reserve(std::span<const EndpointId> to,
                           std::uint64_t bytes,
                           Reservation& reservation) noexcept {
  XYLEM_CHECK(!to.empty() && bytes <= segment_.geometry().large_bytes, to.size(), bytes);
  for (const EndpointId id : to) {
    const Room room = endpoints_[id].outgoing.room();
    if (room != Room::given) return room;
  }
  const auto readers = static_cast<std::uint32_t>(to.size());
  const auto take = [&] {
    return readers == 1 ? slots_.take(to.front(), bytes) : slots_.take_shared(readers, bytes);
  };
  auto slot = take();
  if (!slot && reclaim()) slot = take();
  if (!slot) return Room::later;
  reserved_ = {*slot, bytes, readers};
  reservation = {segment_.slot(*slot), false};
  if (bytes < CacheChoice::kLeastBytes) return Room::given;
  reserved_choices_.clear();
  for (const EndpointId id : to) {
    CacheChoice& choice = endpoints_[id].outgoing.cache_choice();
    reserved_choices_.push_back(&choice);
    reservation.past_cache = reservation.past_cache || choice.is_past_cache();
  }
  return Room::given;
}

void ShmTransport::fill(const void* data, CopyTarget also) noexcept {
  const std::uint64_t bytes = reserved_.bytes;
  CopyTarget slot{segment_.slot(reserved_.slot), false};
  bool is_timed = false;
  if (bytes >= CacheChoice::kLeastBytes) {
    // All readers get the same kind of store: non-temporal if that suits any of them, and the
    // opposite kind if any of them wants a trial.
    bool is_trial = false;
    for (CacheChoice* choice : reserved_choices_) {
      slot.past_cache = slot.past_cache || choice->is_past_cache();
      is_trial = choice->is_trial() || is_trial;
      is_timed = choice->wants_time() || is_timed;
    }
    slot.past_cache = slot.past_cache != is_trial;
    is_timed = is_timed || is_trial || also.memory == nullptr;
  }
  delay();
  if (is_timed) {
    const float time = copy_timed(slot, data, bytes);
    for (CacheChoice* choice : reserved_choices_) choice->learn(slot.past_cache, time);
    if (also.memory != nullptr) copy_to(also, data, bytes);
  } else if (also.memory != nullptr) {
    copy_to_both(slot, also, data, bytes);
  } else {
    copy_to(slot, data, bytes);
  }
}

void ShmTransport::commit(EndpointId to, Tag tag) noexcept {
  Endpoint& endpoint = endpoints_[to];
  endpoint.bytes_sent += reserved_.bytes;
  endpoint.outgoing.put(tag, reserved_.slot, reserved_.bytes);
}

void ShmTransport::abandon() noexcept {
  for (; reserved_.readers > 0; --reserved_.readers) slots_.give_back(reserved_.slot);
}

// An operation that is in none of these places already has its outcome.
void ShmTransport::cancel(Operation& operation) noexcept {
  if (matcher_.cancel(operation)) {
    outcomes_.push_back({&operation, Code::cancelled, 0});
    return;
  }
  for (Source& source : sources_) {
    if (source.incoming.cancel(operation)) return;
  }
  for (Endpoint& endpoint : endpoints_) {
    if (endpoint.outgoing.cancel(operation)) return;
  }
}

std::size_t ShmTransport::discard(Tag tag, Tag mask) noexcept {
  std::size_t count = 0;
  for (; Arrived* arrived = matcher_.find_arrived(tag, mask); ++count) {
    const StreamId stream = arrived->stream;
    const bool is_stream = arrived->is_stream;
    matcher_.drop(*arrived);
    if (is_stream) sources_[stream.channel].incoming.refuse(static_cast<std::uint8_t>(stream.id));
  }
  return count;
}

// ---- progress ----

unsigned ShmTransport::progress() noexcept {
  const bool was_asleep = std::exchange(is_armed_, false);
  delay();
  if (was_asleep) segment_.header().state.store(OwnerState::awake, std::memory_order_relaxed);
  if (was_asleep || unmet_ > 0 || wants_look_ || idle_rounds_ % kRoundsPerLook == 0) {
    meet_peers();
    bury_dead();
    if (has_late_forgets_) follow_allocations();
  }
  if (shared_version_ != Allocations::of_process().version()) follow_allocations();
  unsigned count = 0;
  for (Source& source : sources_) count += source.incoming.drain();
  count += heed_kept();
  heed_wants();
  bool is_stuck = false;
  for (Endpoint& endpoint : endpoints_) {
    if (!endpoint.outgoing.has_work()) continue;
    const unsigned pumped = endpoint.outgoing.pump();
    is_stuck = is_stuck || pumped == 0;
    count += pumped;
  }
  if (is_stuck) reclaim();
  count += tell();
  idle_rounds_ = count > 0 ? 1 : idle_rounds_ + 1;
  return count;
}

// Reports known outcomes. Completion callbacks may post, cancel and close; outcomes that this
// produces are reported by the next call.
unsigned ShmTransport::tell() {
  if (outcomes_.empty()) return 0;
  telling_.swap(outcomes_);
  for (const Outcome& outcome : telling_) {
    outcome.operation->code = outcome.code;
    outcome.operation->bytes = outcome.bytes;
    outcome.operation->view = outcome.view;
    outcome.operation->done(*outcome.operation);
  }
  const auto count = static_cast<unsigned>(telling_.size());
  telling_.clear();
  return count;
}

// This side stores `asleep` and then looks at the rings; peers store into the rings and then look
// at `asleep`. With a full fence between store and load on both sides, at least one side sees the
// other's store (Dekker's algorithm).
Result<bool> ShmTransport::arm() noexcept {
  if (!outcomes_.empty()) return false;
  std::uint64_t wakes = 0;
  [[maybe_unused]] const auto drained = ::read(wake_.get(), &wakes, sizeof wakes);
  auto& state = segment_.header().state;
  delay();
  state.store(OwnerState::asleep, std::memory_order_relaxed);
  delay();
  std::atomic_thread_fence(std::memory_order_seq_cst);
  delay();
  bool is_busy = false;
  for (Source& source : sources_) {
    source.incoming.settle();
    is_busy = is_busy || !source.has_answered || source.incoming.has_entry() ||
              source.incoming.is_fetching();
  }
  for (Endpoint& endpoint : endpoints_) {
    const bool must_call = endpoint.outgoing.is_open() && !endpoint.has_called;
    const bool has_work = endpoint.outgoing.has_work();
    // Somebody may be waiting for the room that is free now.
    is_busy = endpoint.outgoing.retire() || is_busy || must_call;
    is_busy = is_busy || (has_work && endpoint.outgoing.pump() > 0);
    // No descriptor tells when a device has ended a copy.
    is_busy = is_busy || endpoint.outgoing.is_copying();
  }
  if (is_busy || !outcomes_.empty()) {
    state.store(OwnerState::awake, std::memory_order_relaxed);
    return false;
  }
  is_armed_ = true;
  return true;
}

void ShmTransport::hold_wakes(bool held) noexcept {
  holds_wakes_ = held;
  if (held) return;
  for (Peer& peer : peers_) {
    if (std::exchange(peer.wake_later.is_due, false)) peer.owner().wake();
  }
}

void ShmTransport::show_computing(bool computes) noexcept {
  segment_.header().computes.store(computes, std::memory_order_relaxed);
}

bool ShmTransport::do_peers_compute() const noexcept {
  // What a peer has said last stays in its segment after its end.
  return std::ranges::any_of(peers_, [this](const Peer& peer) {
    return peer.segment.header().computes.load(std::memory_order_relaxed) && !is_left(peer);
  });
}

std::vector<Lane> ShmTransport::lanes(EndpointId endpoint) const {
  std::vector<Lane> lanes{{"shm", "memory"}};
  // Only the peer knows whether it can read this process. Permission is usually mutual, so this
  // checks whether this process can read the peer.
  const auto peer = std::ranges::find(peers_, endpoints_[endpoint].nonce, &Peer::nonce);
  if (pull_from_ != kAnySize && peer != peers_.end() && peer->memory.may_pull()) {
    lanes.push_back({"cma", "memory"});
  }
  return lanes;
}

std::uint64_t ShmTransport::bytes_sent(EndpointId endpoint) const noexcept {
  XYLEM_CHECK(endpoint < endpoints_.size(), endpoint, endpoints_.size());
  return endpoints_[endpoint].bytes_sent;
}

}  // namespace xylem::transport::shm

namespace xylem::transport {

Result<ShmSize> shm_size(const ShmOptions& options) {
  XYLEM_TRY(const shm::Geometry geometry, shm::plan_geometry(options.endpoints, options.bytes));
  return ShmSize{geometry.bytes(), geometry.large_bytes};
}

Result<std::unique_ptr<Transport>> make_shm(const ShmOptions& options, const Logger& logger) {
  return shm::ShmTransport::make(options, logger);
}

}  // namespace xylem::transport
