// SPDX-License-Identifier: Apache-2.0
#include "shm/shm_transport.h"

#include "xylem/base/check.h"
#include "xylem/base/hash.h"

#include <fmt/format.h>

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

namespace xylem::transport::shm {
namespace {

constexpr std::uint64_t kAddressMagic = 0x78796c656d2d7368;  // "xylem-sh"
constexpr std::uint32_t kNoSlot = ~0U;
/// Rounds in which nothing happened between two looks at the door.
constexpr std::uint32_t kRoundsPerLook = 64;

using AddressWords = std::array<std::uint64_t, 4>;

std::uint64_t check_of(const AddressWords& words) noexcept {
  return combine(combine(words[0], words[1]), words[2]);
}

std::uint32_t turn_of(std::uint64_t entry) noexcept {
  return static_cast<std::uint32_t>(entry / kEntries) + 1;
}

void write_one(int fd) noexcept {
  const std::uint64_t one = 1;
  // Can fail only when the counter is full, and then the descriptor is readable anyway.
  [[maybe_unused]] const auto written = ::write(fd, &one, sizeof one);
}

Status system_error(std::string_view what) {
  return failure(Code::exhausted, fmt::format("shared memory: {}: {}", what, std::strerror(errno)));
}

}  // namespace

Result<std::unique_ptr<Transport>> ShmTransport::make(const ShmOptions& options) {
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
  return std::unique_ptr<Transport>(
      new ShmTransport(std::move(segment), std::move(door), std::move(wake), std::move(events)));
}

ShmTransport::ShmTransport(Segment segment, Door door, UniqueFd wake, UniqueFd events)
    : segment_(std::move(segment)),
      slots_(segment_.geometry()),
      door_(std::move(door)),
      wake_(std::move(wake)),
      events_(std::move(events)) {
  const Nonce& nonce = segment_.header().nonce;
  AddressWords words{kAddressMagic, nonce[0], nonce[1], 0};
  words[3] = check_of(words);
  std::memcpy(address_.data(), words.data(), sizeof words);
}

// What its peers have not read yet stays in the memory that they map.
ShmTransport::~ShmTransport() {
  segment_.header().state.store(OwnerState::gone, std::memory_order_release);
  for (const Peer& peer : peers_) write_one(peer.wake.get());
}

// ---- introductions ----

Result<EndpointId> ShmTransport::connect(std::span<const std::byte> address) {
  AddressWords words{};
  if (address.size() == sizeof words) std::memcpy(words.data(), address.data(), sizeof words);
  if (address.size() != sizeof words || words[0] != kAddressMagic || words[3] != check_of(words)) {
    return failure(Code::invalid_argument,
                   "not an address of shared memory: pass what address() returned");
  }
  if (endpoints_.size() == segment_.geometry().channels) {
    return failure(Code::exhausted, fmt::format("shared memory was made for {} endpoints: make it "
                                                "for as many as are needed",
                                                endpoints_.size()));
  }
  const auto id = static_cast<EndpointId>(endpoints_.size());
  Endpoint& endpoint = endpoints_.emplace_back();
  endpoint.nonce = {words[1], words[2]};
  endpoint.ring = segment_.ring(id);
  ++calling_;
  call(id);
  return id;
}

void ShmTransport::call(EndpointId id) {
  Endpoint& endpoint = endpoints_[id];
  if (endpoint.has_called || endpoint.standing != Standing::calling) return;
  const Introduction hello{Introduction::Kind::hello, id, 0, segment_.header().nonce};
  const auto sent = door_.introduce(endpoint.nonce, hello, segment_.fd(), wake_.get());
  endpoint.has_called = sent == Door::Sent::done;
  if (sent == Door::Sent::nobody) lose(endpoint);
}

void ShmTransport::answer_door() {
  for (EndpointId id = 0; calling_ > 0 && id < endpoints_.size(); ++id) call(id);
  for (Incoming& incoming : incoming_) answer(incoming);
  while (auto visitor = door_.next()) {
    const Introduction introduction = visitor->introduction;
    Peer* peer = peer_of(*visitor);
    if (introduction.kind == Introduction::Kind::hello) {
      const bool fits = peer != nullptr && introduction.channel < peer->segment.geometry().channels;
      if (!fits || incoming_.size() == segment_.geometry().channels) continue;
      Incoming& incoming = incoming_.emplace_back();
      incoming.peer = peer;
      incoming.their_channel = introduction.channel;
      incoming.channel = static_cast<std::uint32_t>(incoming_.size() - 1);
      incoming.ring = peer->segment.ring(introduction.channel);
      ++calling_;
      answer(incoming);
    } else if (introduction.channel < endpoints_.size()) {
      Endpoint& endpoint = endpoints_[introduction.channel];
      if (endpoint.nonce != introduction.from || endpoint.peer != nullptr) continue;
      if (peer == nullptr || introduction.credit >= peer->segment.geometry().channels) {
        lose(endpoint);
        continue;
      }
      endpoint.peer = peer;
      endpoint.credit = &peer->segment.credit(introduction.credit);
      if (endpoint.standing == Standing::calling) {
        --calling_;
        endpoint.standing = Standing::open;
      }
      // It may sleep beside what is in the ring already.
      std::atomic_thread_fence(std::memory_order_seq_cst);
      wake(*peer);
    }
  }
}

void ShmTransport::answer(Incoming& incoming) {
  if (incoming.has_answered) return;
  const Introduction accept{Introduction::Kind::accept, incoming.their_channel, incoming.channel,
                            segment_.header().nonce};
  const auto sent = door_.introduce(incoming.peer->nonce, accept, segment_.fd(), wake_.get());
  incoming.has_answered = sent != Door::Sent::later;
  if (incoming.has_answered) --calling_;
}

ShmTransport::Peer* ShmTransport::peer_of(Visitor& visitor) {
  const Nonce nonce = visitor.introduction.from;
  const auto known = std::ranges::find(peers_, nonce, &Peer::nonce);
  if (known != peers_.end()) return &*known;
  auto segment = Segment::open(std::move(visitor.segment), nonce);
  if (!segment) return nullptr;
  return &peers_.emplace_back(Peer{nonce, std::move(*segment), std::move(visitor.wake)});
}

// ---- sending ----

void ShmTransport::wake(const Peer& peer) noexcept {
  if (peer.state() == OwnerState::asleep) write_one(peer.wake.get());
}

void ShmTransport::retire(EndpointId id) noexcept {
  Endpoint& endpoint = endpoints_[id];
  if (endpoint.credit == nullptr) return;
  const std::uint64_t consumed =
      std::min(endpoint.credit->consumed.load(std::memory_order_acquire), endpoint.next);
  for (; endpoint.retired < consumed; ++endpoint.retired) {
    const std::uint32_t slot = endpoint.slots[endpoint.retired % kEntries];
    if (slot != kNoSlot) slots_.give_back(id, slot);
  }
}

/// The next entry, to be published; null where the ring is full.
Entry* ShmTransport::next_entry(EndpointId id, EntryKind kind, Tag tag, std::uint64_t bytes) {
  Endpoint& endpoint = endpoints_[id];
  if (endpoint.next - endpoint.retired == kEntries) retire(id);
  if (endpoint.next - endpoint.retired == kEntries) return nullptr;
  Entry& entry = endpoint.ring[endpoint.next % kEntries];
  endpoint.slots[endpoint.next % kEntries] = kNoSlot;
  entry.kind = kind;
  entry.tag = tag;
  entry.bytes = bytes;
  return &entry;
}

void ShmTransport::publish(Endpoint& endpoint) noexcept {
  Entry& entry = endpoint.ring[endpoint.next % kEntries];
  entry.turn.store(turn_of(endpoint.next), std::memory_order_release);
  ++endpoint.next;
  // Either its owner, about to sleep, sees the entry, or we see that it sleeps: see arm().
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (endpoint.peer != nullptr) wake(*endpoint.peer);
}

/// Puts `bytes` of the message into a slot and its entry into the ring.
bool ShmTransport::put_slot(EndpointId id, EntryKind kind, Sending& sending, std::uint64_t bytes) {
  Entry* entry = next_entry(id, kind, sending.tag, bytes);
  if (entry == nullptr) return false;
  auto slot = slots_.take(id, bytes);
  if (!slot) {
    retire(id);
    slot = slots_.take(id, bytes);
    if (!slot) return false;
  }
  Endpoint& endpoint = endpoints_[id];
  std::memcpy(segment_.slot(*slot), sending.data + sending.sent, bytes);
  endpoint.slots[endpoint.next % kEntries] = *slot;
  entry->slot = static_cast<std::uint16_t>(*slot);
  entry->id = sending.id;
  publish(endpoint);
  sending.sent += bytes;
  return true;
}

/// Puts a message into the ring, whole or announced; false where there is no room.
bool ShmTransport::begin(EndpointId id, Sending& sending) {
  Endpoint& endpoint = endpoints_[id];
  if (sending.bytes > segment_.geometry().large_bytes) {
    if (endpoint.streams_used == ~0U) return false;
    Entry* entry = next_entry(id, EntryKind::announce, sending.tag, sending.bytes);
    if (entry == nullptr) return false;
    sending.id = static_cast<std::uint8_t>(std::countr_one(endpoint.streams_used));
    endpoint.streams_used |= 1U << sending.id;
    entry->id = sending.id;
    publish(endpoint);
    return true;
  }
  if (sending.bytes > kInlineBytes) {
    return put_slot(id, EntryKind::slotted, sending, sending.bytes);
  }
  Entry* entry = next_entry(id, EntryKind::eager, sending.tag, sending.bytes);
  if (entry == nullptr) return false;
  if (sending.bytes > 0) std::memcpy(entry->payload.data(), sending.data, sending.bytes);
  publish(endpoint);
  sending.sent = sending.bytes;
  return true;
}

Posted ShmTransport::send(EndpointId to,
                          Tag tag,
                          ConstRegion source,
                          Operation& operation) noexcept {
  XYLEM_CHECK(to < endpoints_.size(), to, endpoints_.size());
  XYLEM_CHECK(source.memory.kind == MemoryKind::host, xylem::name(source.memory.kind));
  Endpoint& endpoint = endpoints_[to];
  endpoint.bytes_sent += source.bytes;
  operation.code = Code::ok;
  operation.bytes = 0;
  if (endpoint.standing == Standing::closed ||
      (endpoint.peer != nullptr && endpoint.peer->state() == OwnerState::gone)) {
    operation.code = Code::peer_lost;
    return Posted::done;
  }
  Sending sending{&operation, static_cast<const std::byte*>(source.data), source.bytes, 0, tag, 0,
                  {}};
  const bool is_large = source.bytes > segment_.geometry().large_bytes;
  const bool begun = endpoint.queue.empty() && begin(to, sending);
  if (begun && !is_large) return Posted::done;
  auto& list = begun ? endpoint.streams : endpoint.queue;
  if (spare_.empty()) spare_.emplace_back();
  list.splice(list.end(), spare_, spare_.begin());
  list.back() = sending;
  if (source.bytes > kInlineBytes) return Posted::pending;
  // Short enough to be kept.
  Sending& kept = list.back();
  if (source.bytes > 0) std::memcpy(kept.kept.data(), source.data, source.bytes);
  kept.data = kept.kept.data();
  kept.operation = nullptr;
  return Posted::done;
}

unsigned ShmTransport::pump(EndpointId id) {
  Endpoint& endpoint = endpoints_[id];
  if (!endpoint.queue.empty() || !endpoint.streams.empty()) {
    if (endpoint.peer != nullptr && endpoint.peer->state() == OwnerState::gone) {
      lose(endpoint);
      return 1;
    }
  }
  retire(id);
  unsigned count = 0;
  const auto end = [&](std::list<Sending>& list, std::list<Sending>::iterator at) {
    if (at->operation != nullptr) outcomes_.push_back({at->operation, Code::ok, 0});
    spare_.splice(spare_.begin(), list, at);
  };
  const std::uint32_t granted =
      endpoint.credit == nullptr ? 0 : endpoint.credit->granted.load(std::memory_order_acquire);
  for (auto it = endpoint.streams.begin(); it != endpoint.streams.end();) {
    const auto at = it++;
    const std::uint32_t bit = 1U << at->id;
    if (((granted ^ endpoint.granted) & bit) == 0) continue;
    const std::uint64_t most = segment_.geometry().large_bytes;
    while (at->sent < at->bytes &&
           put_slot(id, EntryKind::fragment, *at, std::min(most, at->bytes - at->sent))) {
      ++count;
    }
    if (at->sent < at->bytes) break;
    endpoint.granted ^= bit;
    endpoint.streams_used &= ~bit;
    end(endpoint.streams, at);
  }
  while (!endpoint.queue.empty() && begin(id, endpoint.queue.front())) {
    ++count;
    const auto at = endpoint.queue.begin();
    if (at->bytes > segment_.geometry().large_bytes) {
      endpoint.streams.splice(endpoint.streams.end(), endpoint.queue, at);
    } else {
      end(endpoint.queue, at);
    }
  }
  if (endpoint.standing == Standing::closing &&
      next_entry(id, EntryKind::closed, 0, 0) != nullptr) {
    publish(endpoint);
    endpoint.standing = Standing::closed;
    ++count;
  }
  return count;
}

/// Ends what it has not sent; nothing more will be.
void ShmTransport::lose(Endpoint& endpoint) {
  if (endpoint.standing == Standing::calling) --calling_;
  endpoint.standing = Standing::closed;
  for (auto* list : {&endpoint.queue, &endpoint.streams}) {
    for (const Sending& sending : *list) {
      if (sending.operation != nullptr)
        outcomes_.push_back({sending.operation, Code::peer_lost, 0});
    }
    spare_.splice(spare_.end(), *list);
  }
}

void ShmTransport::close(EndpointId id) noexcept {
  XYLEM_CHECK(id < endpoints_.size(), id, endpoints_.size());
  Endpoint& endpoint = endpoints_[id];
  if (endpoint.standing == Standing::closed) return;
  const bool was_heard_of = endpoint.has_called;
  lose(endpoint);
  if (was_heard_of) {
    endpoint.standing = Standing::closing;
    pump(id);
  }
  const auto is_open = [&](const Endpoint& other) {
    return other.nonce == endpoint.nonce &&
           (other.standing == Standing::calling || other.standing == Standing::open);
  };
  if (std::ranges::any_of(endpoints_, is_open)) return;
  for (Incoming& incoming : incoming_) {
    if (incoming.peer->nonce == endpoint.nonce) end_streams(incoming);
  }
}

bool ShmTransport::flush(EndpointId id) noexcept {
  const Endpoint& endpoint = endpoints_[id];
  const bool was_heard_of = endpoint.has_called || endpoint.standing == Standing::closed;
  return was_heard_of && endpoint.queue.empty() && endpoint.streams.empty();
}

// ---- receiving ----

bool ShmTransport::has_entry(const Incoming& incoming) noexcept {
  return !incoming.is_closed && incoming.ring[incoming.next % kEntries].turn.load(
                                    std::memory_order_acquire) == turn_of(incoming.next);
}

unsigned ShmTransport::drain(Incoming& incoming) {
  unsigned count = 0;
  while (has_entry(incoming)) {
    take(incoming, incoming.ring[incoming.next % kEntries]);
    ++incoming.next;
    ++count;
    // A long run goes on while the sender fills what was freed.
    if (count % (kEntries / 4) == 0) publish(incoming);
  }
  if (count > 0) {
    publish(incoming);
  } else if (incoming.open_streams > 0 &&
             incoming.peer->segment.header().state.load(std::memory_order_acquire) ==
                 OwnerState::gone &&
             !has_entry(incoming)) {
    end_streams(incoming);
    return 1;
  }
  return count;
}

void ShmTransport::publish(Incoming& incoming) noexcept {
  Credit& credit = segment_.credit(incoming.channel);
  credit.consumed.store(incoming.next, std::memory_order_release);
  credit.granted.store(incoming.granted, std::memory_order_release);
  // The sender may sleep for want of room.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  wake(*incoming.peer);
}

void ShmTransport::take(Incoming& incoming, const Entry& entry) {
  const Geometry& geometry = incoming.peer->segment.geometry();
  const EntryKind kind = entry.kind;
  const std::uint64_t bytes = entry.bytes;
  const bool has_slot = kind == EntryKind::slotted || kind == EntryKind::fragment;
  const bool is_sound =
      entry.id < kStreams && (kind != EntryKind::eager || bytes <= kInlineBytes) &&
      (!has_slot || (entry.slot < geometry.slots() && bytes <= geometry.slot_bytes(entry.slot)));
  if (kind == EntryKind::closed || !is_sound) {
    incoming.is_closed = true;
    return end_streams(incoming);
  }
  const std::byte* data = has_slot ? incoming.peer->segment.slot(entry.slot) : entry.payload.data();
  if (kind == EntryKind::fragment) return add_fragment(incoming, entry, data);
  Receive receive;
  const bool is_stream = kind == EntryKind::announce;
  if (is_stream) {
    Stream& stream = incoming.streams[entry.id];
    if (stream.use != Stream::Use::free) return end_streams(incoming);
    stream = {Stream::Use::announced, entry.tag, bytes, 0, {}};
    ++incoming.open_streams;
  }
  if (matcher_.take_receive(entry.tag, receive)) {
    if (is_stream) return meet(incoming, entry.id, receive);
    outcomes_.push_back(copy_out(receive, entry.tag, data, bytes));
    return;
  }
  Arrived& arrived = matcher_.keep(entry.tag, bytes, is_stream);
  if (is_stream) {
    arrived.stream = {incoming.channel, entry.id};
  } else if (bytes > 0) {
    std::memcpy(arrived.payload.data(), data, bytes);
  }
}

ShmTransport::Outcome ShmTransport::copy_out(const Receive& receive,
                                             Tag tag,
                                             const std::byte* data,
                                             std::uint64_t bytes) {
  if (receive.sender_tag != nullptr) *receive.sender_tag = tag;
  if (bytes > receive.target.bytes) return {receive.operation, Code::mismatch, 0};
  if (bytes > 0) std::memcpy(receive.target.data, data, bytes);
  return {receive.operation, Code::ok, bytes};
}

/// Where a stream goes is known: it may flow. The caller publishes it.
void ShmTransport::meet(Incoming& incoming, std::uint8_t id, const Receive& receive) {
  Stream& stream = incoming.streams[id];
  stream.use = Stream::Use::met;
  stream.receive = receive;
  if (receive.sender_tag != nullptr) *receive.sender_tag = stream.tag;
  incoming.granted ^= 1U << id;
}

void ShmTransport::add_fragment(Incoming& incoming, const Entry& entry, const std::byte* data) {
  Stream& stream = incoming.streams[entry.id];
  if (stream.use == Stream::Use::free || entry.bytes > stream.bytes - stream.received) {
    incoming.is_closed = true;
    return end_streams(incoming);
  }
  const bool fits = stream.bytes <= stream.receive.target.bytes;
  if (stream.use == Stream::Use::met && fits) {
    std::memcpy(static_cast<std::byte*>(stream.receive.target.data) + stream.received, data,
                entry.bytes);
  }
  stream.received += entry.bytes;
  if (stream.received < stream.bytes) return;
  if (stream.use == Stream::Use::met) {
    outcomes_.push_back(
        {stream.receive.operation, fits ? Code::ok : Code::mismatch, fits ? stream.bytes : 0});
  }
  stream.use = Stream::Use::free;
  --incoming.open_streams;
}

/// The rest of its streams will not come.
void ShmTransport::end_streams(Incoming& incoming) {
  if (incoming.open_streams == 0) return;
  matcher_.drop_streams(incoming.channel);
  for (Stream& stream : incoming.streams) {
    if (stream.use == Stream::Use::met)
      outcomes_.push_back({stream.receive.operation, Code::peer_lost, 0});
    // What still comes of it is dropped.
    if (stream.use != Stream::Use::free) stream.use = Stream::Use::dropped;
  }
  if (!incoming.is_closed) return;
  for (Stream& stream : incoming.streams) stream.use = Stream::Use::free;
  incoming.open_streams = 0;
}

Posted ShmTransport::recv(
    Tag tag, Tag mask, Region target, Operation& operation, Tag* sender_tag) noexcept {
  XYLEM_CHECK(target.memory.kind == MemoryKind::host, xylem::name(target.memory.kind));
  operation.state = nullptr;
  const Receive receive{tag, mask, target, &operation, sender_tag, 0};
  Arrived* arrived = matcher_.find_arrived(tag, mask);
  if (arrived == nullptr) {
    matcher_.post(receive);
    return Posted::pending;
  }
  if (arrived->is_stream) {
    Incoming& incoming = incoming_[arrived->stream.channel];
    meet(incoming, arrived->stream.id, receive);
    matcher_.drop(*arrived);
    publish(incoming);
    return Posted::pending;
  }
  const Outcome outcome = copy_out(receive, arrived->tag, arrived->payload.data(), arrived->bytes);
  matcher_.drop(*arrived);
  operation.code = outcome.code;
  operation.bytes = outcome.bytes;
  return Posted::done;
}

void ShmTransport::cancel(Operation& operation) noexcept {
  if (matcher_.cancel(operation)) outcomes_.push_back({&operation, Code::cancelled, 0});
}

std::size_t ShmTransport::discard(Tag tag, Tag mask) noexcept {
  std::size_t count = 0;
  for (; Arrived* arrived = matcher_.find_arrived(tag, mask); ++count) {
    if (arrived->is_stream) {
      // It flows, to nowhere.
      Incoming& incoming = incoming_[arrived->stream.channel];
      incoming.streams[arrived->stream.id].use = Stream::Use::dropped;
      incoming.granted ^= 1U << arrived->stream.id;
      publish(incoming);
    }
    matcher_.drop(*arrived);
  }
  return count;
}

// ---- progress ----

unsigned ShmTransport::progress() noexcept {
  const bool was_asleep = std::exchange(is_armed_, false);
  if (was_asleep) segment_.header().state.store(OwnerState::awake, std::memory_order_relaxed);
  if (was_asleep || calling_ > 0 || idle_rounds_ % kRoundsPerLook == 0) answer_door();
  unsigned count = 0;
  for (Incoming& incoming : incoming_) count += drain(incoming);
  for (EndpointId id = 0; id < endpoints_.size(); ++id) {
    if (endpoints_[id].has_work()) count += pump(id);
  }
  count += tell();
  idle_rounds_ = count > 0 ? 1 : idle_rounds_ + 1;
  return count;
}

// Tells known outcomes. Completions may post, cancel and close; what that yields waits for the next
// call.
unsigned ShmTransport::tell() {
  if (outcomes_.empty()) return 0;
  telling_.swap(outcomes_);
  for (const Outcome& outcome : telling_) {
    outcome.operation->code = outcome.code;
    outcome.operation->bytes = outcome.bytes;
    outcome.operation->done(*outcome.operation);
  }
  const auto count = static_cast<unsigned>(telling_.size());
  telling_.clear();
  return count;
}

// Store `asleep`, then look at the rings; peers store into rings, then look at `asleep`. With a
// full fence between the two on both sides, one of them sees what the other wrote (Dekker).
Result<bool> ShmTransport::arm() noexcept {
  if (!outcomes_.empty()) return false;
  std::uint64_t wakes = 0;
  [[maybe_unused]] const auto drained = ::read(wake_.get(), &wakes, sizeof wakes);
  auto& state = segment_.header().state;
  state.store(OwnerState::asleep, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  bool is_busy = false;
  for (const Incoming& incoming : incoming_) {
    is_busy = is_busy || has_entry(incoming) || !incoming.has_answered;
  }
  for (EndpointId id = 0; id < endpoints_.size(); ++id) {
    const Endpoint& endpoint = endpoints_[id];
    const bool calls = endpoint.standing == Standing::calling && !endpoint.has_called;
    is_busy = is_busy || calls || (endpoint.has_work() && pump(id) > 0);
  }
  if (is_busy || !outcomes_.empty()) {
    state.store(OwnerState::awake, std::memory_order_relaxed);
    return false;
  }
  is_armed_ = true;
  return true;
}

std::vector<Lane> ShmTransport::lanes(EndpointId /*endpoint*/) const { return {{"shm", "memory"}}; }

std::uint64_t ShmTransport::bytes_sent(EndpointId endpoint) const noexcept {
  XYLEM_CHECK(endpoint < endpoints_.size(), endpoint, endpoints_.size());
  return endpoints_[endpoint].bytes_sent;
}

}  // namespace xylem::transport::shm

namespace xylem::transport {

Result<std::unique_ptr<Transport>> make_shm(const ShmOptions& options) {
  return shm::ShmTransport::make(options);
}

}  // namespace xylem::transport
