// SPDX-License-Identifier: Apache-2.0
//
// Status and Result: how every failure is reported. The code tells what the caller can do next; the
// message names the value, the rule and the remedy. A successful Status is a null pointer, so
// success costs almost nothing.
#pragma once

#include "xylem/base/api.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

namespace xylem {

/// The kind of a failure, which decides what the caller can do next.
enum class Code : std::uint8_t {
  ok,
  invalid_argument,  ///< The call violates the contract: correct the call.
  /// A correct call that this build, machine or data type does not support: use an alternative.
  unsupported,
  exhausted,  ///< Memory, descriptors or a quota ran out: free some, or raise the limit.
  timed_out,  ///< A deadline passed: the message names the rank that was missing.
  cancelled,  ///< A rank aborted the communicator, or shut down with operations pending.
  /// A rank died or closed its connection: restart the job, or continue with communicators that
  /// never contained this rank.
  peer_lost,
  link_lost,     ///< The path to a rank that is alive failed.
  device_lost,   ///< A NIC or GPU stopped answering.
  mismatch,      ///< Ranks disagree on a call, a configuration or a version.
  bad_schedule,  ///< A schedule failed verification.
  busy,          ///< The object has pending operations: wait for them first.
  internal,      ///< A bug in Xylem.
};
inline constexpr Code kLastCode = Code::internal;
/// Whether an untrusted number, such as one that a peer has sent, is the code of an error.
constexpr bool is_error_code(std::int64_t number) noexcept {
  return number > static_cast<std::int64_t>(Code::ok) &&
         number <= static_cast<std::int64_t>(kLastCode);
}

/// The name of the code in logs and messages, such as "peer_lost".
XYLEM_API std::string_view name(Code code) noexcept;

/// One failure. `peer` is the world rank that caused it, if a rank did.
struct Error {
  Code code = Code::internal;
  std::string message;
  std::optional<std::uint32_t> peer = std::nullopt;
  bool holds_buffers = false;  ///< See Status::holds_buffers().
};

/// The outcome of an operation that returns no value. Cheap to copy, and safe to share between
/// threads.
class [[nodiscard]] XYLEM_API Status {
 public:
  Status() noexcept = default;
  Status(Error error)  // NOLINT: implicit by design
      : error_(std::make_shared<const Error>(std::move(error))) {}

  static Status ok() noexcept { return {}; }

  bool is_ok() const noexcept { return error_ == nullptr; }
  explicit operator bool() const noexcept { return is_ok(); }
  Code code() const noexcept { return error_ ? error_->code : Code::ok; }
  /// Empty if OK.
  std::string_view message() const noexcept {
    return error_ ? std::string_view(error_->message) : std::string_view();
  }
  /// The world rank that caused the failure, if a rank did.
  std::optional<std::uint32_t> peer() const noexcept {
    return error_ ? error_->peer : std::nullopt;
  }
  /// True if the operation's buffers may still be read or written: do not free or reuse them before
  /// the process ends. There are three causes. (1) UCX could not cancel a message whose peer does
  /// not answer, but is not known to have died. (2) A device does not finish its work. (3) A call
  /// failed that the devices of one process execute together (Communicator::bind), and a device of
  /// another rank may have begun to use the buffers.
  bool holds_buffers() const noexcept { return error_ && error_->holds_buffers; }
  /// "peer_lost: rank 3 died (...)", or "ok".
  std::string to_string() const;

 private:
  std::shared_ptr<const Error> error_;
};

/// Makes a failed Status.
inline Status failure(Code code, std::string message, std::optional<std::uint32_t> peer = {}) {
  return Status(Error{code, std::move(message), peer});
}

/// A value, or the failed Status that explains why there is no value.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value)  // NOLINT: implicit by design
      : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Status status) : state_(std::in_place_index<1>, std::move(status)) {}  // NOLINT
  Result(Error error) : Result(Status(std::move(error))) {}                     // NOLINT

  bool is_ok() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return is_ok(); }

  /// The failure; OK if there is a value.
  Status status() const { return is_ok() ? Status() : std::get<1>(state_); }
  Code code() const noexcept { return is_ok() ? Code::ok : std::get<1>(state_).code(); }

  /// The value. Requires is_ok(): otherwise the caller has a bug, and std::get() throws.
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Status> state_;
};

namespace detail {
inline Status status_of(Status status) { return status; }
template <typename T>
Status status_of(const Result<T>& result) {
  return result.status();
}
}  // namespace detail

}  // namespace xylem

// NOLINTBEGIN(bugprone-macro-parentheses): `lhs` may declare a variable
#define XYLEM_DETAIL_CONCAT2(a, b) a##b
#define XYLEM_DETAIL_CONCAT(a, b) XYLEM_DETAIL_CONCAT2(a, b)
#define XYLEM_DETAIL_TRY(expr)                          \
  do {                                                  \
    if (auto xylem_outcome = (expr); !xylem_outcome) {  \
      return ::xylem::detail::status_of(xylem_outcome); \
    }                                                   \
  } while (false)
#define XYLEM_DETAIL_TRY2(lhs, expr) \
  XYLEM_DETAIL_TRY3(lhs, expr, XYLEM_DETAIL_CONCAT(xylem_result_, __LINE__))
#define XYLEM_DETAIL_TRY3(lhs, expr, tmp) \
  auto tmp = (expr);                      \
  if (!tmp) return tmp.status();          \
  lhs = std::move(tmp).value()
// NOLINTEND(bugprone-macro-parentheses)

/// Evaluates `expr` and, if it failed, returns its error from the enclosing function:
/// `XYLEM_TRY(send_all(fd, bytes));` or `XYLEM_TRY(auto fd, open_socket(address));`
#define XYLEM_TRY(first, ...) XYLEM_DETAIL_TRY##__VA_OPT__(2)(first __VA_OPT__(, ) __VA_ARGS__)
