// SPDX-License-Identifier: Apache-2.0
//
// A rank that runs programs drawn from seeds, and checks every element.
//
// A fault, if there is one, happens at the rank `victim`, at a random call of the last program:
//
//   kill      it kills itself
//   stop      it stops; the parent lets it go on when the others have told of their end
//   pause     it stops, and goes on after a moment
//   leave     it shuts down in good order
//   abort     it aborts one communicator; the others go on
//   mismatch  it calls something else
//   cut       one of its connections for payload is cut (tcp alone)
//
// The others go on with the whole program. Their calls end well, and right, or, on communicators
// that the fault concerns, with its error, soon. The buffers of calls that ended with an error are
// filled with a pattern, and looked at again when the victim is through.
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
  std::string directory;                  ///< Where the victim says that it is through.
  const DeviceBuffers* device = nullptr;  ///< Where some of the buffers are.
  bool withdraws = true;  ///< The transport lets go of buffers though a peer stands still.
};

class Rank {
 public:
  Rank(Runtime& runtime, Setting setting)
      : runtime_(runtime),
        setting_(std::move(setting)),
        world_(runtime.world()),
        of_the_start_(connected_sockets()) {}

  /// What went wrong; nothing if all was as it must be.
  std::string run();
  /// The longest wait for an error, in seconds.
  double worst() const noexcept { return worst_; }
  std::uint64_t checked() const noexcept { return checked_; }

 private:
  bool is_victim() const { return runtime_.rank() == setting_.victim; }
  bool is_last_program() const { return program_ + 1 == setting_.programs; }
  bool has_fault() const { return !setting_.fault.empty() && is_last_program(); }
  void fail(const std::string& what);
  void run_program();
  bool make_comms();
  /// Waits for one of the calls under way: the oldest, mostly.
  void take_one(std::uint64_t chance);
  /// Whether an error is the one that the fault must bring.
  void judge(const Flight& flight, const Status& outcome, double took);
  /// Who of the two ends is to blame nobody can know.
  void judge_cut(const Status& outcome, const std::string& text);
  /// Whether the fault may end calls on a communicator.
  bool concerns(std::uint32_t comm) const;
  std::uint32_t aborted() const { return 1 + static_cast<std::uint32_t>(draw(seed_, 4) % 4); }
  /// At the victim. Whether it goes on with the program.
  bool commit_fault(const MixedCall& call);
  /// TCP connections of this process.
  static std::set<int> connected_sockets();
  /// Not one of the control plane's, which are there from the start on.
  void cut_a_connection() const;
  /// Stops this process; another one lets it go on after a while.
  static void pause_for(std::chrono::milliseconds time);
  std::string file(const std::string& what) const { return setting_.directory + "/" + what; }
  /// Nothing may come into the buffers of calls that have ended: not when the victim goes on, and
  /// not after it has ended.
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
