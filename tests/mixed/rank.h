// SPDX-License-Identifier: Apache-2.0
//
// A rank that runs programs drawn from seeds, and checks every element of their outputs.
//
// If there is a fault, it happens at the rank `victim`, at a random call of the last program:
//
//   kill      it kills itself
//   stop      it stops; the parent continues it after all other ranks have printed "survived"
//   pause     it stops, and is continued after a moment
//   leave     it shuts down in good order
//   abort     it aborts one communicator, and the other communicators continue
//   mismatch  it makes a call with other arguments
//   cut       it cuts one of its connections for payload (only over tcp)
//
// The other ranks run the whole program. If a call is on a communicator that the fault does not
// affect, the call must succeed with right results. Other calls may succeed, or fail soon with an
// error that fits the fault. After a call has failed, its buffers are filled with a pattern. The
// pattern must not change until the victim has ended or continued.
#pragma once

#include "mixed/flight.h"
#include "xylem/base/clock.h"

#include <chrono>
#include <cstdint>
#include <deque>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace xylem::test::mixed {

struct Setting {
  std::uint64_t seed = 0;
  std::uint32_t programs = 1, calls = 0;
  std::string fault;
  std::uint32_t victim = 0;
  std::string directory;     ///< Directory in which the victim reports that it has finished.
  Device* device = nullptr;  ///< Device for some of the buffers, or null.
  bool withdraws = true;  ///< False if the transport cannot withdraw messages from a stopped peer.
};

class Rank {
 public:
  Rank(Runtime& runtime, Setting setting)
      : runtime_(runtime),
        setting_(std::move(setting)),
        world_(runtime.world()),
        of_the_start_(connected_sockets()) {}

  /// Runs all programs. Returns what went wrong, or an empty string.
  std::string run();
  /// The longest wait for an error, in seconds.
  double worst() const noexcept { return worst_; }
  std::uint64_t checked() const noexcept { return checked_; }

 private:
  bool is_victim() const { return runtime_.rank() == setting_.victim; }
  bool is_last_program() const { return program_ + 1 == setting_.programs; }
  bool has_fault() const { return !setting_.fault.empty() && is_last_program(); }
  void fail(const std::string& what);
  /// Describes incorrect use of the device's driver by this process, or is empty.
  std::string misuse() const;
  void run_program();
  bool make_comms();
  bool bind_devices();
  /// Waits for one of the calls under way, usually the oldest.
  void take_one(std::uint64_t chance);
  /// Fails the test if `outcome` is not an error that the fault may cause in this call.
  void judge(const Flight& flight, const Status& outcome, double took);
  /// Like judge(), for the fault "cut". The error may blame either end of the connection, since no
  /// rank can know which end has cut it.
  void judge_cut(const Status& outcome, const std::string& text);
  /// True if the fault may end calls on this communicator.
  bool concerns(std::uint32_t comm) const;
  std::uint32_t aborted() const { return 1 + static_cast<std::uint32_t>(draw(seed_, 4) % 4); }
  /// Executes the fault. Only the victim calls this. Returns true if the victim continues the
  /// program.
  bool commit_fault(const MixedCall& call);
  /// The file descriptors of this process's TCP connections.
  static std::set<int> connected_sockets();
  /// Cuts a connection that did not exist at the start, so that it is not a connection of the
  /// control plane.
  void cut_a_connection() const;
  /// Stops this process. A child process continues it after `time`.
  static void pause_for(std::chrono::milliseconds time);
  std::string file(const std::string& what) const { return setting_.directory + "/" + what; }
  /// Checks that the buffers of failed calls were not written after the calls ended, not even after
  /// a stopped victim has continued.
  void watch();

  Runtime& runtime_;
  const Setting setting_;
  Communicator world_, alone_;
  std::vector<Communicator> comms_;
  std::deque<Flight> flights_;
  std::vector<Flight> ended_, held_;
  std::string failure_;
  std::uint32_t program_ = 0;
  std::uint64_t seed_ = 0, fault_at_ = 0, checked_ = 0;
  double worst_ = 0;
  std::uint32_t fault_comm_ = kComms;
  const std::set<int> of_the_start_;
};

}  // namespace xylem::test::mixed
