// SPDX-License-Identifier: Apache-2.0
#include "support/memory_control.h"

#include "runtime/src/bootstrap/socket.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

namespace xylem::test {
namespace {

/// The sockets of a new connection over the loopback interface. Both are empty if connecting fails.
std::array<UniqueFd, 2> connected_sockets() {
  const Deadline deadline = Deadline::after(std::chrono::seconds(5));
  const auto here = runtime::SocketAddress::parse("127.0.0.1", 0);
  if (!here) return {};
  const auto listener = runtime::listen_on(*here);
  if (!listener) return {};
  const auto address = runtime::SocketAddress::of_socket(listener->get());
  if (!address) return {};
  auto caller = runtime::connect_to(*address, deadline);
  if (!caller || !runtime::wait_for(listener->get(), POLLIN, deadline)) return {};
  auto callee = runtime::accept_from(listener->get());
  if (!callee) return {};
  for (const int end : {caller->get(), callee->get()}) runtime::keep_alive(end);
  return {std::move(*caller), std::move(*callee)};
}

}  // namespace

class MemoryControl final : public runtime::ControlPlane {
 public:
  MemoryControl(std::shared_ptr<MemoryHub> hub, std::uint32_t rank)
      : hub_(std::move(hub)), rank_(rank), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    const std::lock_guard lock(hub_->mutex_);
    hub_->wake_[rank_] = wake_.get();
  }
  MemoryControl(const MemoryControl&) = delete;
  MemoryControl& operator=(const MemoryControl&) = delete;
  ~MemoryControl() override {
    const std::lock_guard lock(hub_->mutex_);
    hub_->wake_[rank_] = -1;
    // The inbox may contain sockets. The ranks at their other ends notice that this rank has ended
    // only when these sockets are closed.
    hub_->inbox_[rank_].clear();
  }

  std::uint32_t rank() const noexcept override { return rank_; }
  std::uint32_t size() const noexcept override { return hub_->size_; }
  std::vector<runtime::Interface> interfaces() const override { return {}; }
  void listen_for_payload_at(const runtime::SocketAddress& /*address*/) override {}

  Result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte> mine,
                                                         Deadline deadline) override {
    std::unique_lock lock(hub_->mutex_);
    const std::uint64_t number = hub_->next_round_[rank_]++;
    auto& round = hub_->rounds_[number];
    round.values.resize(hub_->size_);
    round.values[rank_].assign(mine.begin(), mine.end());
    if (++round.arrived == hub_->size_) hub_->arrival_.notify_all();
    const bool complete = hub_->arrival_.wait_until(lock, deadline.point(),
                                                    [&] { return round.arrived == hub_->size_; });
    if (!complete) return failure(Code::timed_out, "a rank of the test did not come");
    return round.values;
  }

  int fd() const noexcept override { return wake_.get(); }

  Clock::time_point serve(runtime::ControlListener& listener) override {
    std::uint64_t drained = 0;
    [[maybe_unused]] const auto got = ::read(wake_.get(), &drained, sizeof drained);
    std::vector<MemoryHub::News> news;
    {
      const std::lock_guard lock(hub_->mutex_);
      news.swap(hub_->inbox_[rank_]);
      hub_->being_served_[rank_] = news.size();
    }
    for (auto& item : news) {
      switch (item.kind) {
        case MemoryHub::News::Kind::message: listener.on_message(item.rank, item.bytes); break;
        case MemoryHub::News::Kind::lost:
          listener.on_peer_lost(item.rank, "killed by the test");
          break;
        case MemoryHub::News::Kind::left: listener.on_peer_left(item.rank); break;
        case MemoryHub::News::Kind::connected:
          listener.on_connected(std::move(item.connection));
          break;
      }
    }
    const std::lock_guard lock(hub_->mutex_);
    hub_->being_served_[rank_] = 0;
    hub_->served_.notify_all();
    return Clock::now() + std::chrono::seconds(1);
  }

  void flood(std::span<const std::byte> message, std::uint64_t topic) override {
    {
      const std::lock_guard lock(hub_->mutex_);
      if (!hub_->topics_.record_topic(topic, Clock::now())) return;
    }
    hub_->tell_others(rank_, MemoryHub::News::Kind::message, message);
  }

  void send(std::uint32_t rank, std::span<const std::byte> message) override {
    const std::lock_guard lock(hub_->mutex_);
    hub_->tell(rank, {.kind = MemoryHub::News::Kind::message,
                      .rank = rank_,
                      .bytes = {message.begin(), message.end()}});
  }

  void request_connection(std::uint32_t rank) override { hub_->introduce(rank_, rank); }

  void leave(Deadline) override { hub_->tell_others(rank_, MemoryHub::News::Kind::left, {}); }

 private:
  std::shared_ptr<MemoryHub> hub_;
  const std::uint32_t rank_;
  UniqueFd wake_;
};

MemoryHub::MemoryHub(std::uint32_t size)
    : size_(size), next_round_(size, 0), inbox_(size), being_served_(size, 0), wake_(size, -1) {}

std::unique_ptr<runtime::ControlPlane> MemoryHub::attach(std::uint32_t rank) {
  return std::make_unique<MemoryControl>(shared_from_this(), rank);
}

void MemoryHub::kill(std::uint32_t rank) { tell_others(rank, News::Kind::lost, {}); }

void MemoryHub::part(std::uint32_t rank) { tell_others(rank, News::Kind::left, {}); }

std::uint64_t MemoryHub::floods() {
  const std::lock_guard lock(mutex_);
  return floods_;
}

bool MemoryHub::wait_for_floods(std::uint64_t count) {
  std::unique_lock lock(mutex_);
  return flooded_.wait_for(lock, std::chrono::seconds(20), [&] { return floods_ >= count; });
}

bool MemoryHub::wait_until_served(std::uint32_t rank) {
  std::unique_lock lock(mutex_);
  return served_.wait_for(lock, std::chrono::seconds(20),
                          [&] { return inbox_[rank].empty() && being_served_[rank] == 0; });
}

void MemoryHub::tell(std::uint32_t rank, News news) {
  inbox_[rank].push_back(std::move(news));
  const std::uint64_t one = 1;
  if (wake_[rank] >= 0) [[maybe_unused]]
    const auto written = ::write(wake_[rank], &one, sizeof one);
}

void MemoryHub::tell_others(std::uint32_t rank, News::Kind kind, std::span<const std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  if (kind == News::Kind::message) ++floods_;
  for (std::uint32_t other = 0; other < size_; ++other) {
    if (other != rank) tell(other, {kind, rank, {bytes.begin(), bytes.end()}, {}});
  }
  flooded_.notify_all();
}

bool MemoryHub::cut(std::uint32_t a, std::uint32_t b) {
  const std::lock_guard lock(mutex_);
  const auto connection = connections_.find(std::minmax(a, b));
  return connection != connections_.end() && ::shutdown(connection->second.get(), SHUT_RDWR) == 0;
}

bool MemoryHub::silence(std::uint32_t a, std::uint32_t b) {
  const std::lock_guard lock(mutex_);
  const auto connection = connections_.find(std::minmax(a, b));
  if (connection == connections_.end()) return false;
  sock_filter nothing[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
  const sock_fprog filter{1, nothing};
  return ::setsockopt(connection->second.get(), SOL_SOCKET, SO_ATTACH_FILTER, &filter,
                      sizeof filter) == 0;
}

void MemoryHub::introduce(std::uint32_t a, std::uint32_t b) {
  const std::lock_guard lock(mutex_);
  if (connections_.contains(std::minmax(a, b))) return;
  auto ends = connected_sockets();
  if (!ends[0]) return;
  connections_[std::minmax(a, b)].reset(::fcntl(ends[0].get(), F_DUPFD_CLOEXEC, 0));
  runtime::FrameKeys keys;
  keys.outgoing.fill(std::byte{1});
  keys.incoming.fill(std::byte{2});
  const runtime::FrameKeys others{keys.incoming, keys.outgoing};
  tell(a, {News::Kind::connected, b, {}, {b, std::move(ends[0]), keys}});
  tell(b, {News::Kind::connected, a, {}, {a, std::move(ends[1]), others}});
}

}  // namespace xylem::test
