// SPDX-License-Identifier: Apache-2.0
//
// Origin: where a call is made, in the program or in a callback. When callbacks run, in relation to
// the program, depends on timing. So the collectives of callbacks are ordered separately from those
// of the program, and carry a label, by which they match only those of the same callback.
#pragma once

#include <cstdint>
#include <utility>

namespace xylem::pytorch {

struct Origin {
  enum class Kind : std::uint8_t {
    program,   ///< The program itself.
    callback,  ///< A callback of a collective that the program has called.
    nested,    ///< A callback of a collective that a callback has called.
    unknown,   ///< Any other callback: of messages, which have no common number, or of an unknown
               ///< call.
  };
  Kind kind = Kind::program;
  std::uint64_t group = 0;  ///< The group of the call whose callback it is (TaskGroup::id()).
  std::uint64_t number =
      0;  ///< Counts the collectives of the program, or of callbacks, on that group.

  bool is_program() const noexcept { return kind == Kind::program; }
  /// The origin of calls in callbacks of a collective that was itself called here.
  Origin of_callbacks(std::uint64_t of_group, std::uint64_t call) const noexcept {
    return {is_program() ? Kind::callback : Kind::nested, of_group, call};
  }
  /// The hash by which collectives on `called` are labelled (Communicator::labelled()): equal at
  /// all ranks, and different for different origins; 0 for the program. The numbers of another
  /// group may differ among the ranks, so its callbacks are unknown.
  std::uint64_t label_on(std::uint64_t called) const noexcept {
    constexpr std::uint64_t kKinds = 4;
    const bool is_known = is_program() || group == called;
    return is_known ? number * kKinds + static_cast<std::uint64_t>(kind)
                    : static_cast<std::uint64_t>(Kind::unknown);
  }
};

/// While it exists, the calls of this thread have this origin. Scopes nest.
class OriginScope {
 public:
  explicit OriginScope(const Origin& origin) noexcept : before_(std::exchange(of_thread, origin)) {}
  OriginScope(const OriginScope&) = delete;
  OriginScope& operator=(const OriginScope&) = delete;
  ~OriginScope() { of_thread = before_; }

  /// The origin of calls that this thread makes now.
  static const Origin& current() noexcept { return of_thread; }

 private:
  static inline thread_local Origin of_thread;
  const Origin before_;
};

}  // namespace xylem::pytorch
