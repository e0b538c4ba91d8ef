// SPDX-License-Identifier: Apache-2.0
//
// The door of a transport: a Unix socket without a file, at which peers introduce themselves and
// pass descriptors of the memory that they share. Only processes of the same user are accepted.
#pragma once

#include "shm/segment.h"
#include "xylem/base/status.h"
#include "xylem/base/unique_fd.h"

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>

namespace xylem::transport::shm {

struct Introduction {
  enum class Kind : std::uint32_t {
    hello,  ///< "Read my ring `channel`." With my segment and the eventfd that wakes me.
    /// "I read your ring `channel`; its credits are my line `credit`." With the same descriptors.
    accept,
    share,   ///< "You may read my `allocation` of `bytes`." With its memory.
    forget,  ///< "I have freed my `allocation`."
  };
  Kind kind = Kind::hello;
  std::uint32_t channel = 0;
  std::uint32_t credit = 0;
  std::uint32_t allocation = 0;
  std::uint64_t bytes = 0;
  Nonce from{};
  std::uint64_t nonce_at = 0;  ///< The address of a copy of `from` in the sender's process.
};
/// The number of descriptors that an introduction carries.
std::size_t descriptors_of(Introduction::Kind kind) noexcept;

struct Visitor {
  static constexpr std::size_t kMostDescriptors = 2;

  Introduction introduction;
  /// The sender's process id as seen here; 0 if the sender is in a pid name space that is not
  /// visible here.
  pid_t process = 0;
  std::array<UniqueFd, kMostDescriptors> descriptors;
};

class Door {
 public:
  static Result<Door> open(const Nonce& nonce);

  int fd() const noexcept { return socket_.get(); }
  enum class Sent : std::uint8_t { done, later, nobody };
  /// Sends the introduction, with copies of the descriptors, to the owner of the door `to`.
  Sent introduce(const Nonce& to,
                 const Introduction& introduction,
                 std::span<const int> descriptors) noexcept;
  /// Whether the process that opened the door is alive.
  static bool is_anybody_behind(const Nonce& door) noexcept;
  /// The next introduction that has arrived, if there is one.
  std::optional<Visitor> next() noexcept;

 private:
  explicit Door(UniqueFd socket) noexcept : socket_(std::move(socket)) {}

  UniqueFd socket_;
};

}  // namespace xylem::transport::shm
