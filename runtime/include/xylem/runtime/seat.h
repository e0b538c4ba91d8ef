// SPDX-License-Identifier: Apache-2.0
//
// Seat: one rank's reservation for a communicator that only some ranks of the job form. These
// members exchange their ranks and the numbers of their seats by other means than Xylem, such as
// the key-value store of a framework:
//
//   each member: Runtime::take_seat() ──► publishes its world rank and its seat's number
//   all members: agree on a Formation ──► Runtime::form()
//
// Communicator::split() is simpler if all ranks of a communicator take part.
#pragma once

#include "xylem/base/api.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace xylem {

namespace runtime {
struct Context;
struct Seats;
}  // namespace runtime

/// A handle to one of this rank's 1023 slots for communicators (the world's slot is not among
/// them). Runtime::form() assigns the seat to a communicator, which releases it when it ends. If
/// the seat was not used, the destructor of the handle releases it. Such a seat cannot be taken
/// again for two seconds, since other ranks may still send messages to it.
class XYLEM_API Seat {
 public:
  Seat() noexcept = default;
  Seat(Seat&& other) noexcept = default;
  Seat& operator=(Seat&& other) noexcept;
  Seat(const Seat&) = delete;
  Seat& operator=(const Seat&) = delete;
  ~Seat();

  /// 1 to 1023; 0 if the handle is empty.
  std::uint32_t number() const noexcept { return context_ ? number_ : 0; }

 private:
  friend struct runtime::Seats;
  Seat(std::shared_ptr<runtime::Context> context, std::uint32_t number) noexcept
      : context_(std::move(context)), number_(number) {}
  void give_back() noexcept;
  /// Call this when the seat has been assigned to a group. The destructor then does not release the
  /// seat.
  void keep() noexcept { context_.reset(); }

  std::shared_ptr<runtime::Context> context_;
  std::uint32_t number_ = 0;
};

/// What the members of a new communicator have agreed on. All members must pass the same values,
/// except for `timeout`.
struct Formation {
  struct Member {
    std::uint32_t rank = 0;  ///< World rank: the rank in the job.
    std::uint32_t seat = 0;  ///< The number of the seat that this member has taken.
  };
  /// A random number that identifies the new communicator among all communicators of the job.
  std::uint64_t uid = 0;
  std::vector<Member> members;  ///< In the order of their ranks in the new communicator.
  /// The time limit of each operation; if unset, Options::timeout of the job.
  std::optional<std::chrono::milliseconds> timeout;
  /// True if the members will pass buffers of the same kind of memory to each collective. The
  /// communicator then begins with Binding::same_memory (Communicator::bind()).
  bool has_same_memory = false;
};

}  // namespace xylem
