// SPDX-License-Identifier: Apache-2.0
//
// Ranks that are threads and share a control plane.
#include "support/control_ranks.h"

#include "runtime/src/bootstrap/secret.h"
#include "support/outcome.h"

#include <gtest/gtest.h>

#include <poll.h>

#include <thread>

namespace xylem::test {

using runtime::ControlPlane;

Status MemoryStore::set(std::string_view key, std::span<const std::byte> value) {
  const std::lock_guard lock(mutex_);
  const bool is_new = values_.emplace(key, std::vector(value.begin(), value.end())).second;
  changed_.notify_all();
  return is_new ? Status() : failure(Code::invalid_argument, "set twice: " + std::string(key));
}

Result<std::vector<std::byte>> MemoryStore::get(std::string_view key, Deadline deadline) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline.point(), [&] { return values_.find(key) != values_.end(); });
  const auto found = values_.find(key);
  if (found != values_.end()) return found->second;
  return failure(Code::timed_out, "nobody set " + std::string(key));
}

Deadline soon_enough() { return Deadline::after(std::chrono::seconds(40)); }

runtime::Placement placement_of(std::uint32_t rank, std::uint32_t size, const std::string& job) {
  runtime::Placement placement;
  placement.launcher = "options";
  placement.rank = rank;
  placement.size = size;
  placement.job = job;
  placement.secret = runtime::secret_of_job(job);
  placement.rendezvous_host = "127.0.0.1";
  return placement;
}

runtime::InterfaceChoice loopback() {
  return {{"lo", runtime::SocketAddress::parse("127.0.0.1", 0).value()}, "test"};
}

void Recorder::on_message(std::uint32_t origin, std::span<const std::byte> message) {
  messages[origin].emplace_back(runtime::text_of(message));
}

bool serve_until(ControlPlane& plane,
                 Recorder& recorder,
                 const std::function<bool()>& enough,
                 Deadline deadline) {
  for (;;) {
    const Deadline due = earlier(deadline, Deadline::at(plane.serve(recorder)));
    if (enough()) return true;
    if (deadline.passed()) return false;
    pollfd entry{plane.fd(), POLLIN, 0};
    ::poll(&entry, 1, due.left_ms());
  }
}

void on_each_rank(std::uint32_t size, const std::function<void(std::uint32_t rank)>& body) {
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&body, rank] { report_exceptions([&] { body(rank); }); });
  }
  for (std::thread& thread : threads) thread.join();
}

void finish(Store& store, std::uint32_t rank, std::uint32_t size) {
  if (rank > 0) {
    EXPECT_TRUE(store.set("finish." + std::to_string(rank), {}));
    return;
  }
  for (std::uint32_t other = 1; other < size; ++other) {
    EXPECT_TRUE(store.get("finish." + std::to_string(other), soon_enough()));
  }
}

Planes join_all(std::uint32_t size,
                const std::shared_ptr<Store>& store,
                Deadline deadline,
                const std::string& job) {
  Planes planes;
  for (std::uint32_t rank = 0; rank < size; ++rank)
    planes.emplace_back(failure(Code::internal, "not joined"));
  on_each_rank(size, [&](std::uint32_t rank) {
    const auto placement = placement_of(rank, size, job);
    planes[rank] = ControlPlane::join(placement, *store, {}, {}, deadline);
  });
  return planes;
}

}  // namespace xylem::test
