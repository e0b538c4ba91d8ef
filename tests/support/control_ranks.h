// SPDX-License-Identifier: Apache-2.0
//
// Ranks that are threads of one process. They find each other through a store in memory, and are
// joined by a control plane.
#pragma once

#include "runtime/src/bootstrap/control_join.h"
#include "runtime/src/bootstrap/control_plane.h"
#include "runtime/src/bootstrap/launcher.h"
#include "xylem/base/clock.h"
#include "xylem/runtime/store.h"

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace xylem::test {

/// A store as a user could write one. It lives in one process, so all ranks must be threads of this
/// process.
class MemoryStore final : public Store {
 public:
  Status set(std::string_view key, std::span<const std::byte> value) override;
  Result<std::vector<std::byte>> get(std::string_view key, Deadline deadline) override;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::vector<std::byte>, std::less<>> values_;
};

/// A deadline that a passing test never reaches, even on a busy machine.
Deadline soon_enough();

/// The placement of a rank whose rank, size and job are set by the user.
runtime::Placement placement_of(std::uint32_t rank,
                                std::uint32_t size,
                                const std::string& job = "test");

/// The loopback interface.
runtime::InterfaceChoice loopback();

/// Records what a control plane reports.
struct Recorder final : runtime::ControlListener {
  void on_peer_lost(std::uint32_t rank, std::string_view how) override {
    lost[rank].emplace_back(how);
  }
  void on_peer_left(std::uint32_t rank) override { ++left[rank]; }
  void on_message(std::uint32_t origin, std::span<const std::byte> message) override;
  void on_connected(runtime::PayloadConnection connection) override {
    connected.push_back(std::move(connection));
  }
  void on_connection_failed(std::uint32_t rank, const Status& why) override { failed[rank] = why; }

  std::map<std::uint32_t, std::vector<std::string>> lost;
  std::map<std::uint32_t, int> left;
  std::map<std::uint32_t, std::vector<std::string>> messages;
  std::vector<runtime::PayloadConnection> connected;
  std::map<std::uint32_t, Status> failed;
};

/// Serves `plane` until `enough` returns true. Returns false if the deadline passes first.
bool serve_until(runtime::ControlPlane& plane,
                 Recorder& recorder,
                 const std::function<bool()>& enough,
                 Deadline deadline);

/// Calls `body` once for each rank, each time on a new thread, and waits for all threads.
void on_each_rank(std::uint32_t size, const std::function<void(std::uint32_t rank)>& body);

/// Each rank calls this when it has finished with `store`. Rank 0 returns only after all ranks have
/// called, since rank 0 may be the store's server.
void finish(Store& store, std::uint32_t rank, std::uint32_t size);

using Planes = std::vector<Result<std::unique_ptr<runtime::ControlPlane>>>;

/// Joins `size` ranks, each on its own thread, and returns their control planes.
Planes join_all(std::uint32_t size,
                const std::shared_ptr<Store>& store,
                Deadline deadline,
                const std::string& job = "test");

}  // namespace xylem::test
