// SPDX-License-Identifier: Apache-2.0
//
// Ranks as threads that meet through a store in memory and share a control plane.
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

/// A user's store: ranks in one process share it.
class MemoryStore final : public Store {
 public:
  Status set(std::string_view key, std::span<const std::byte> value) override;
  Result<std::vector<std::byte>> get(std::string_view key, Deadline deadline) override;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::vector<std::byte>, std::less<>> values_;
};

/// A time that no test reaches, even on a machine that does other things.
Deadline soon_enough();

/// A rank of a job that its program named.
runtime::Placement placement_of(std::uint32_t rank,
                                std::uint32_t size,
                                const std::string& job = "test");

/// Loopback.
runtime::InterfaceChoice loopback();

/// What a control plane told.
struct Recorder final : runtime::ControlListener {
  void on_peer_lost(std::uint32_t rank, std::string_view how) override {
    lost[rank].emplace_back(how);
  }
  void on_peer_left(std::uint32_t rank) override { ++left[rank]; }
  void on_message(std::uint32_t origin, std::span<const std::byte> message) override;
  void on_met(runtime::Encounter encounter) override { met.push_back(std::move(encounter)); }
  void on_unmet(std::uint32_t rank, const Status& why) override { unmet[rank] = why; }

  std::map<std::uint32_t, std::vector<std::string>> lost;
  std::map<std::uint32_t, int> left;
  std::map<std::uint32_t, std::vector<std::string>> messages;
  std::vector<runtime::Encounter> met;
  std::map<std::uint32_t, Status> unmet;
};

/// Serves until `enough`; false if the deadline came first.
bool serve_until(runtime::ControlPlane& plane,
                 Recorder& recorder,
                 const std::function<bool()>& enough,
                 Deadline deadline);

/// Calls `body` once per rank, each on a thread of its own, and waits for all.
void on_each_rank(std::uint32_t size, const std::function<void(std::uint32_t rank)>& body);

/// Ends the use of a store that ranks share: rank 0, which may serve it, goes last.
void finish(Store& store, std::uint32_t rank, std::uint32_t size);

using Planes = std::vector<Result<std::unique_ptr<runtime::ControlPlane>>>;

/// The control planes of a job of `size` ranks, joined by as many threads.
Planes join_all(std::uint32_t size,
                const std::shared_ptr<Store>& store,
                Deadline deadline,
                const std::string& job = "test");

}  // namespace xylem::test
