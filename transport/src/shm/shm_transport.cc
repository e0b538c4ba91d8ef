// SPDX-License-Identifier: Apache-2.0
#include "shm/shm_transport.h"

#include "shm/delays.h"
#include "xylem/base/check.h"
#include "xylem/base/hash.h"

#include <fmt/format.h>

#include <sys/random.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace xylem::transport::shm {
namespace {

constexpr std::uint64_t kAddressMagic = 0x78796c656d2d7368;  // "xylem-sh"
/// The socket is checked once in this many calls of progress() that find no work.
constexpr std::uint32_t kRoundsPerLook = 64;
/// View::id of a message that arrived before its receive was posted.
constexpr std::uint64_t kUnexpected = ~std::uint64_t{0};

using AddressWords = std::array<std::uint64_t, 4>;

std::uint64_t check_of(const AddressWords& words) noexcept {
  return combine(combine(words[0], words[1]), words[2]);
}

}  // namespace

Result<std::unique_ptr<Transport>> ShmTransport::make(const ShmOptions& options,
                                                      const Logger& logger) {
  XYLEM_TRY(const Geometry geometry, plan_geometry(options.endpoints, options.bytes));
  Nonce nonce{};
  if (getrandom(nonce.data(), sizeof nonce, 0) != sizeof nonce) {
    return failure(Code::exhausted, "shared memory: the system has no random numbers");
  }
  XYLEM_TRY(Segment segment, Segment::create(geometry, nonce));
  XYLEM_TRY(PeerSocket socket, PeerSocket::open(nonce));
  XYLEM_TRY(Sleeper sleeper, Sleeper::open(segment, socket.fd()));
  return std::unique_ptr<Transport>(
      new ShmTransport(std::move(segment), std::move(socket), std::move(sleeper), options, logger));
}

ShmTransport::ShmTransport(Segment segment,
                           PeerSocket socket,
                           Sleeper sleeper,
                           const ShmOptions& options,
                           const Logger& logger)
    : segment_(std::move(segment)),
      slots_(segment_.geometry()),
      sleeper_(std::move(sleeper)),
      devices_(options.devices),
      peers_(segment_, std::move(socket), sleeper_.wake_fd(), logger),
      channels_(segment_, slots_, peers_, matcher_, outcomes_, options),
      own_memory_(peers_) {
  const Nonce& nonce = segment_.header().nonce;
  AddressWords words{kAddressMagic, nonce[0], nonce[1], 0};
  words[3] = check_of(words);
  std::memcpy(address_.data(), words.data(), sizeof words);
  if (devices_ != nullptr) devices_->register_host(segment_.memory(), segment_.bytes());
}

// Peers can still read messages in the segment, which they have mapped. The segment also stays
// mapped in this process if a device may still write to it, or if it cannot be unregistered.
ShmTransport::~ShmTransport() {
  const bool is_free = devices_ == nullptr ||
                       (channels_.finish_copies() && devices_->unregister_host(segment_.memory()));
  channels_.report_consumed();
  segment_.header().state.store(OwnerState::ended, std::memory_order_release);
  for (const Peer& peer : peers_.all()) peer.owner().signal();
  if (!is_free) segment_.leave_mapped();
}

Result<EndpointId> ShmTransport::connect(std::span<const std::byte> address) {
  AddressWords words{};
  if (address.size() == sizeof words) std::memcpy(words.data(), address.data(), sizeof words);
  if (address.size() != sizeof words || words[0] != kAddressMagic || words[3] != check_of(words)) {
    return failure(Code::invalid_argument,
                   "not an address of shared memory: pass what address() returned");
  }
  if (channels_.size() == segment_.geometry().channels) {
    return failure(Code::exhausted, fmt::format("shared memory was made for {} endpoints: make it "
                                                "for more endpoints",
                                                channels_.size()));
  }
  return channels_.connect({words[1], words[2]});
}

// ---- messages ----

Posted ShmTransport::send(EndpointId to,
                          Tag tag,
                          ConstRegion source,
                          Operation& operation) noexcept {
  XYLEM_CHECK(to < channels_.size(), to, channels_.size());
  XYLEM_CHECK(source.memory.kind == MemoryKind::host || devices_ != nullptr,
              xylem::name(source.memory.kind));
  Endpoint& endpoint = channels_.endpoint(to);
  Outbound message{static_cast<const std::byte*>(source.data), source.bytes, source.memory};
  if (source.memory.kind == MemoryKind::host) {
    message.location = own_memory_.locate(endpoint.reachable_peer(), source);
  } else if (devices_->share(source, message.place)) {
    message.location.where = Location::Where::device;
  }
  return endpoint.outgoing.send(tag, message, operation);
}

bool ShmTransport::send_inline(EndpointId to,
                               Tag tag,
                               const void* data,
                               std::uint64_t bytes) noexcept {
  return channels_.endpoint(to).outgoing.send_inline(tag, static_cast<const std::byte*>(data),
                                                     bytes);
}

void ShmTransport::close(EndpointId id) noexcept {
  XYLEM_CHECK(id < channels_.size(), id, channels_.size());
  channels_.close(id);
}

bool ShmTransport::flush(EndpointId id) noexcept {
  const Endpoint& endpoint = channels_.endpoint(id);
  const bool is_on_its_way = endpoint.hello_sent || !endpoint.outgoing.is_open();
  return is_on_its_way && endpoint.outgoing.is_flushed();
}

Posted ShmTransport::recv(
    Tag tag, Tag mask, Region target, Operation& operation, Tag* sender_tag) noexcept {
  XYLEM_CHECK(target.memory.kind == MemoryKind::host, xylem::name(target.memory.kind));
  return match({tag, mask, target, &operation, sender_tag}, matcher_.find_arrived(tag, mask));
}

/// Posts a receive, or begins to transfer the message that has arrived for it.
Posted ShmTransport::match(const Receive& receive, Arrived* arrived) noexcept {
  Operation& operation = *receive.operation;
  operation.state = nullptr;
  if (arrived == nullptr) {
    matcher_.post(receive);
    channels_.on_posted(receive);
    return Posted::pending;
  }
  if (arrived->is_stream) {
    const StreamId stream = arrived->stream;
    matcher_.drop(*arrived);
    channels_.source(stream.channel).incoming.match(static_cast<std::uint8_t>(stream.id), receive);
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
    return match(receive, arrived);
  }
  operation.state = nullptr;
  operation.code = Code::ok;
  operation.bytes = arrived->bytes;
  operation.view = {arrived->payload.data(), kUnexpected};
  matcher_.detach_payload(*arrived);
  return Posted::done;
}

bool ShmTransport::take_view(EndpointId from, Tag tag, std::uint64_t bytes, View& view) noexcept {
  Incoming* const incoming = channels_.incoming_from(from);
  return incoming != nullptr && incoming->take_view(tag, bytes, view);
}

bool ShmTransport::release(const View& view) noexcept {
  if (view.id == kUnexpected) {
    matcher_.release_payload(view.data);
    return true;
  }
  const ViewPlace place = unpack(view.id);
  return channels_.source(place.channel).incoming.release(place);
}

ReserveResult ShmTransport::reserve(std::span<const EndpointId> to,
                                    std::uint64_t bytes,
                                    Reservation& reservation) noexcept {
  XYLEM_CHECK(!to.empty() && bytes <= segment_.geometry().large_bytes, to.size(), bytes);
  for (const EndpointId id : to) {
    const ReserveResult room = channels_.endpoint(id).outgoing.room();
    if (room != ReserveResult::reserved) return room;
  }
  const auto readers = static_cast<std::uint32_t>(to.size());
  const auto acquire = [&] {
    return readers == 1 ? slots_.acquire(to.front(), bytes) : slots_.acquire_shared(readers, bytes);
  };
  auto slot = acquire();
  if (!slot && channels_.retire()) slot = acquire();
  if (!slot) return ReserveResult::retry_later;
  reserved_ = {*slot, bytes, readers};
  reservation = {segment_.slot(*slot), false};
  if (bytes < CacheChoice::kLeastBytes) return ReserveResult::reserved;
  reader_choices_.clear();
  for (const EndpointId id : to) {
    reader_choices_.add(channels_.endpoint(id).outgoing.cache_choice());
  }
  reservation.non_temporal = reader_choices_.is_non_temporal();
  return ReserveResult::reserved;
}

void ShmTransport::fill(const void* data, CopyTarget also) noexcept {
  std::byte* const slot = segment_.slot(reserved_.slot);
  const std::uint64_t bytes = reserved_.bytes;
  delay();
  if (bytes >= CacheChoice::kLeastBytes) {
    reader_choices_.copy(slot, also, data, bytes);
  } else if (also.memory != nullptr) {
    copy_to_both({slot, false}, also, data, bytes);
  } else {
    copy_to({slot, false}, data, bytes);
  }
}

void ShmTransport::commit(EndpointId to, Tag tag) noexcept {
  channels_.endpoint(to).outgoing.put(tag, reserved_.slot, reserved_.bytes);
}

void ShmTransport::abandon() noexcept {
  for (; reserved_.readers > 0; --reserved_.readers) slots_.release(reserved_.slot);
}

// If neither the matcher nor a channel has the operation, its outcome is in `outcomes_` already.
void ShmTransport::cancel(Operation& operation) noexcept {
  if (matcher_.cancel(operation)) {
    outcomes_.push_back({&operation, Code::cancelled, 0});
    return;
  }
  channels_.cancel(operation);
}

std::size_t ShmTransport::discard(Tag tag, Tag mask) noexcept {
  std::size_t count = 0;
  for (; Arrived* arrived = matcher_.find_arrived(tag, mask); ++count) {
    const StreamId stream = arrived->stream;
    const bool is_stream = arrived->is_stream;
    matcher_.drop(*arrived);
    if (is_stream)
      channels_.source(stream.channel).incoming.refuse(static_cast<std::uint8_t>(stream.id));
  }
  return count;
}

// ---- progress ----

unsigned ShmTransport::progress() noexcept {
  const bool was_asleep = sleeper_.wake_up();
  if (was_asleep || idle_rounds_ % kRoundsPerLook == 0 || channels_.must_poll_socket()) {
    channels_.poll_socket();
    own_memory_.retry();
  }
  own_memory_.update();
  unsigned count = channels_.progress();
  if (!outcomes_.empty()) count += report(outcomes_, reporting_);
  idle_rounds_ = count > 0 ? 1 : idle_rounds_ + 1;
  return count;
}

Result<bool> ShmTransport::arm() noexcept {
  if (!outcomes_.empty()) return false;
  sleeper_.prepare();
  channels_.report_consumed();
  return sleeper_.finish(!channels_.is_busy() && outcomes_.empty());
}

bool ShmTransport::do_peers_compute() const noexcept {
  // `computes` keeps its last value after the end of a peer, so peers that have ended are excluded.
  return std::ranges::any_of(peers_.all(), [this](const Peer& peer) {
    return peer.segment.header().computes.load(std::memory_order_relaxed) &&
           !channels_.is_left(peer);
  });
}

ConnectState ShmTransport::connect_state(EndpointId id) const noexcept {
  XYLEM_CHECK(id < channels_.size(), id, channels_.size());
  return channels_.connect_state(id);
}

std::vector<PhysicalPath> ShmTransport::paths(EndpointId id) const {
  std::vector<PhysicalPath> paths{{"shm", "memory"}};
  // Only the peer can determine whether it may read this process. Permission is usually mutual, so
  // this function checks whether this process may read the peer.
  const auto peer = std::ranges::find(peers_.all(), channels_.endpoint(id).nonce, &Peer::nonce);
  if (own_memory_.may_be_pulled() && peer != peers_.all().end() && peer->memory.may_pull()) {
    paths.push_back({"cma", "memory"});
  }
  return paths;
}

Traffic ShmTransport::traffic(EndpointId id) const noexcept {
  XYLEM_CHECK(id < channels_.size(), id, channels_.size());
  return channels_.endpoint(id).outgoing.traffic();
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
