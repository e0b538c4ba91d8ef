// SPDX-License-Identifier: Apache-2.0
//
// Recorder: the last calls of this process on all its groups, for those who ask why a job stands
// still. What it writes is what torch's flight recorder writes (version 2.4 of the format), and
// torch.distributed.flight_recorder reads it.
#pragma once

#include "tensors.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

namespace xylem::pytorch {

/// A group as records name it.
struct GroupLabel {
  std::string name;
  std::string description;
  std::vector<std::uint64_t> ranks;  ///< Of the world.
};

/// What is recorded of a call when it begins.
struct CallRecord {
  const char* title = "";  ///< "xylem:all_reduce"; static.
  c10d::OpType type = c10d::OpType::UNKNOWN;
  std::uint64_t sequence = 0;
  std::uint64_t messages = 0;  ///< Of the group, up to this one.
  int rank = 0, peer = -1;     ///< In the group; the peer of messages, if it is known.
  std::chrono::milliseconds timeout{};
};

/// Any thread.
class Recorder {
 public:
  /// The process' own. It is never destroyed: threads may record until the process ends.
  static Recorder& get();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  ~Recorder() = delete;

  /// Keeps the last `entries` calls, at most a million, and dumps to `prefix` and the rank. Forgets
  /// what was recorded if that is another number than before.
  void configure(std::size_t entries, std::string prefix);
  /// This process' rank in the world.
  void set_rank(std::uint64_t rank);
  /// Of a call that was begun; to be passed to end(). 0 where nothing is recorded.
  std::uint64_t begin(const std::shared_ptr<const GroupLabel>& group,
                      const CallRecord& call,
                      const Tensors& inputs,
                      const Tensors& outputs) noexcept;
  void end(std::uint64_t id, bool well) noexcept;
  /// All records, pickled.
  std::string pickled() const;
  /// Writes them to a file for this process, and returns its path: the prefix, and the rank in the
  /// world, or the process' number while that is not known. Throws if it cannot be written.
  std::string dump();
  /// Does so the first time that it is called, and tells where; for time-outs, of which the first
  /// tells most.
  void dump_once() noexcept;
  /// From now on dumps whenever the process gets the signal, for which it installs a handler.
  void dump_on_signal(int number);

 private:
  Recorder();
  enum class State : std::uint8_t { started, completed, failed };
  static constexpr std::size_t kMostDimensions = 6;

  /// Of the first tensor of a call, which stands for all of it; of more dimensions the first.
  struct Shape {
    std::array<std::int64_t, kMostDimensions> sizes{};
    std::uint8_t dimensions = 0;
    bool is_there = false;
    at::ScalarType type = at::ScalarType::Undefined;

    void take(const Tensors& tensors);
    /// Of the one tensor, or of none.
    c10::IValue dimensions_list() const;
    c10::IValue types_list() const;
  };
  struct Entry {
    std::uint64_t id = 0;
    std::shared_ptr<const GroupLabel> group;
    CallRecord call;
    Shape input, output;
    std::int64_t begun_ns = 0, ended_ns = 0;
    State state = State::started;
  };

  /// One record in torch's form.
  static c10::IValue recorded(const Entry& entry, std::int64_t group_number);

  mutable std::mutex mutex_;
  std::vector<Entry> entries_;  ///< A ring: id % size.
  std::uint64_t next_ = 1;
  std::optional<std::uint64_t> rank_;
  std::string prefix_;
  std::mutex dumping_;
  std::once_flag dumped_;
};

}  // namespace xylem::pytorch
