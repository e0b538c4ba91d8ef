// SPDX-License-Identifier: Apache-2.0
//
// Seat: with seats, some ranks of a job can form a communicator without the others. The members
// find each other by means of their own, such as the key-value store of a framework:
//
//   each member: Runtime::take_seat() ──► publishes its rank in the job and its seat's number
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

/// A place for one communicator at this rank. Each rank of a job has 1023 of them, besides that of
/// the world. A seat is released with the communicator or, if it was not used, when its handle is
/// destroyed. In the latter case it cannot be taken again for two seconds, since others may still
/// send to it.
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
  /// Call this when the seat belongs to a group: the destructor does not release it then.
  void keep() noexcept { context_.reset(); }

  std::shared_ptr<runtime::Context> context_;
  std::uint32_t number_ = 0;
};

/// What the members of a new communicator have agreed on. Equal on all of them, except for
/// `timeout`.
struct Formation {
  struct Member {
    std::uint32_t rank = 0;  ///< In the job.
    std::uint32_t seat = 0;  ///< The number of the seat that this member has taken.
  };
  /// A number drawn at random for this communicator. It distinguishes it from all others of the
  /// job.
  std::uint64_t uid = 0;
  std::vector<Member> members;  ///< In the order of their ranks in the new communicator.
  /// The limit of each operation; if unset, that of the job (Options::timeout).
  std::optional<std::chrono::milliseconds> timeout;
};

}  // namespace xylem
