// SPDX-License-Identifier: Apache-2.0
//
// Recorder: the last calls of this process on all its groups, which help to find out why a job
// hangs. Its output has the format of torch's flight recorder (version 2.4), which
// torch.distributed.flight_recorder reads.
#pragma once

#include "tensors.h"
#include "xylem/base/mutex.h"
#include "xylem/xylem.h"

#include <array>
#include <atomic>
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

/// A group, as records describe it.
struct GroupLabel {
  std::string name;
  std::string description;
  std::vector<std::uint64_t> ranks;  ///< Ranks in the world.
};

/// Facts about a call that are recorded when it begins.
struct CallRecord {
  const char* title = "";  ///< Such as "xylem:all_reduce"; a static string.
  c10d::OpType type = c10d::OpType::UNKNOWN;
  std::uint64_t sequence = 0;
  std::uint64_t messages = 0;  ///< Number of messages of the group so far.
  int rank = 0, peer = -1;  ///< Ranks in the group; the peer of a message if known, otherwise -1.
  std::chrono::milliseconds timeout{};
};

/// Thread-safe.
class Recorder {
 public:
  /// The recorder of this process. Never destroyed, since threads may record until the process
  /// ends.
  static Recorder& get();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  ~Recorder() = delete;

  /// Sets how many calls are kept, at most a million, and where dumps are written: to files named
  /// `prefix` plus the rank or, if `prefix` is empty, to files in a folder for the job. Changing
  /// the number of entries deletes all records.
  void configure(std::size_t entries, std::string prefix);
  /// Sets whether records include the Python functions on the caller's stack, innermost first.
  void record_stacks(bool are_recorded) noexcept { has_stacks_ = are_recorded; }
  /// Sets this process's rank in the world, and the name of the job to which its newest group
  /// belongs.
  void set_place(std::uint64_t rank, const std::string& job);
  /// Records that a call has begun. Returns an id for end(); 0 if no calls are recorded.
  std::uint64_t begin(const std::shared_ptr<const GroupLabel>& group,
                      const CallRecord& call,
                      const Tensors& inputs,
                      const Tensors& outputs) noexcept;
  void end(std::uint64_t id, bool well) noexcept;
  /// All records, pickled.
  std::string pickled() const;
  /// Writes all records to the file of this process and returns its path: the prefix, or
  /// "/tmp/xylem_trace_JOB/rank_", followed by the rank in the world or, while that is unknown, the
  /// process id. Throws if the file cannot be written.
  std::string dump();
  /// Dumps and logs the path, on the first call only. Used for failures, of which the first is the
  /// most informative. Calls on other threads wait until the dump is complete.
  void dump_once() noexcept;
  /// Runs dump_once() on a separate thread, for callers that must not block.
  void dump_soon() noexcept;
  /// Registers that dump_soon() is called when the communicator fails by a time-out or a mismatch.
  /// A rank that has not called the failed operation dumps, too: its record shows that the call is
  /// missing.
  static void dump_on_failure_of(const Communicator& group);
  /// Installs a signal handler that dumps whenever the process receives the signal.
  void dump_on_signal(int number);

 private:
  Recorder();
  enum class State : std::uint8_t { started, completed, failed };
  static constexpr std::size_t kMostDimensions = 6;

  /// The shape of the first tensor of a call, which represents all its tensors. Only the first
  /// kMostDimensions dimensions are kept.
  struct Shape {
    std::array<std::int64_t, kMostDimensions> sizes{};
    std::uint8_t dimensions = 0;
    bool is_there = false;
    at::ScalarType type = at::ScalarType::Undefined;

    void take(const Tensors& tensors);
    /// For torch: a list with one shape, or an empty list if the call has no tensor.
    c10::IValue dimensions_list() const;
    c10::IValue types_list() const;
  };
  /// A Python function on the caller's stack.
  struct Frame {
    std::string name, file;
    std::int64_t line = 0;
  };
  struct Entry {
    std::uint64_t id = 0;
    std::vector<Frame> frames;
    std::shared_ptr<const GroupLabel> group;
    CallRecord call;
    Shape input, output;
    std::int64_t begun_ns = 0, ended_ns = 0;
    State state = State::started;
  };

  /// The Python functions on the stack of this thread. Acquires Python's lock.
  static std::vector<Frame> python_stack() noexcept;
  /// One record in torch's form.
  static c10::IValue recorded(const Entry& entry, std::int64_t group_number);

  // Called around a fork (pthread_atfork), so that no lock stays locked in the child.
  static void lock() XYLEM_LOCKING(acquire_capability(get().dumping_, get().mutex_));
  static void unlock() XYLEM_LOCKING(release_capability(get().dumping_, get().mutex_));

  std::atomic<bool> has_stacks_{false};
  mutable Mutex mutex_;
  /// A ring buffer; index id % size.
  std::vector<Entry> entries_ XYLEM_LOCKING(guarded_by(mutex_));
  std::uint64_t next_ XYLEM_LOCKING(guarded_by(mutex_)) = 1;
  std::optional<std::uint64_t> rank_ XYLEM_LOCKING(guarded_by(mutex_));
  /// Drawn at random, so no other user can have made a folder with this name beforehand.
  std::string job_ XYLEM_LOCKING(guarded_by(mutex_));
  std::string prefix_ XYLEM_LOCKING(guarded_by(mutex_));
  Mutex dumping_;  ///< Held while the file is written.
  std::once_flag dumped_;
};

}  // namespace xylem::pytorch
