// SPDX-License-Identifier: Apache-2.0
//
// A made-up device: a Compute that completes work later, and memory that the CPU cannot access.
// Work runs only when the device is polled. Each poll runs a few pieces of work, drawn from a seed
// among those that may run, so a test is repeatable.
#pragma once

#include "support/buffer_memory.h"
#include "xylem/base/unique_fd.h"
#include "xylem/execution/compute.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <random>
#include <set>
#include <vector>

namespace xylem::test {

/// Memory with device addresses. A CPU that accesses such an address gets SIGSEGV. The made-up
/// device accesses the same bytes through another mapping.
class DeviceMemory final : public BufferMemory {
 public:
  explicit DeviceMemory(std::size_t bytes);
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() override;

  std::byte* allocate(std::size_t bytes) override;
  void clear() noexcept override { used_ = 0; }
  bool contains(const void* address) const noexcept;
  /// Converts a device address to the address that the made-up device uses. Returns other addresses
  /// unchanged.
  std::byte* seen_by_device(const void* address) const noexcept;
  void write(std::byte* device, const void* source, std::size_t bytes) const override;
  void read(void* target, const std::byte* device, std::size_t bytes) const override;

 private:
  std::size_t bytes_ = 0, used_ = 0;
  UniqueFd file_;
  std::byte* forbidden_ = nullptr;
  std::byte* backing_ = nullptr;
};

struct DelayedComputeOptions {
  std::uint64_t seed = 1;
  std::uint32_t queues = 1;
  bool ignores_order = false;     ///< A broken device: work does not wait for other queues.
  bool keeps_cancelled = false;   ///< Cancelled work still waits for its dependencies.
  std::uint64_t fault_after = 0;  ///< The number of pieces of work before a fault; 0 for no fault.
  bool opens_gates = false;       ///< Each poll may open a gate.
};

class DelayedCompute final : public execution::Compute {
 public:
  using Ticket = execution::Ticket;

  DelayedCompute(const DeviceMemory& memory, DelayedComputeOptions options);
  DelayedCompute(const DelayedCompute&) = delete;
  DelayedCompute& operator=(const DelayedCompute&) = delete;
  ~DelayedCompute() override;

  /// Makes a gate: a ticket that completes when open() is called. Any thread may call this.
  Ticket make_gate();
  /// Makes a gate at which a stream waits until a call ends.
  Ticket make_end();
  bool has_opened_all_ends() const noexcept { return ends_opened_ == ends_; }
  std::uint64_t gates_made() const noexcept { return gates_; }
  std::uint64_t gates_forgotten() const noexcept { return forgotten_.size(); }
  bool is_open(Ticket gate) const;
  /// The number of pieces of work that have run.
  std::uint64_t done() const noexcept { return done_; }

  /// The device has one stream. When the gate is opened, the stream's earlier work counts as done.
  Result<Ticket> gate_after(void* /*stream*/) override { return make_gate(); }
  Result<Ticket> gate_before(void* /*stream*/) override { return make_end(); }
  std::uint32_t queues() const noexcept override { return options_.queues; }
  Ticket enqueue(std::uint32_t queue,
                 const execution::ComputeWork& work,
                 std::span<const Ticket> after) noexcept override;
  bool has_completed(Ticket ticket) noexcept override;
  void cancel(Ticket ticket) noexcept override;
  void open(Ticket gate) noexcept override;
  void forget(Ticket gate) noexcept override;
  Status health() const override;

 private:
  struct Piece {
    execution::ComputeWork work;
    std::vector<const void*> sources;
    std::vector<Ticket> after;
    bool is_cancelled = false;
  };
  struct Queue {
    std::deque<Piece> waiting;
    std::uint64_t completed = 0;  ///< Number of the last piece that has completed.
  };

  bool is_done(Ticket ticket) const;
  bool may_run(const Piece& piece) const;
  void run_one();
  void open_one();
  void run(Piece& piece);

  const DeviceMemory& memory_;
  DelayedComputeOptions options_;
  std::mt19937_64 random_;
  std::vector<Queue> queues_;
  std::atomic<std::uint64_t> gates_{0}, ends_{0};
  std::uint64_t ends_opened_ = 0;
  std::uint64_t done_ = 0;
  std::set<std::uint64_t> open_gates_, forgotten_;
};

}  // namespace xylem::test
