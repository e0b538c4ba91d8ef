// SPDX-License-Identifier: Apache-2.0
//
// The door of a transport: a socket without a file, at which others hand over their segments and
// what else they share. Only processes of the same user are let in.
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
    hello,   ///< "Read my ring `channel`." With the segment, and what wakes its owner.
    accept,  ///< "I read your ring `channel`; its credits are my line `credit`." With the same.
    share,   ///< "You may read my `allocation` of so many `bytes`." With its memory.
    forget,  ///< "I have given back my `allocation`."
  };
  Kind kind = Kind::hello;
  std::uint32_t channel = 0;
  std::uint32_t credit = 0;
  std::uint32_t allocation = 0;
  std::uint64_t bytes = 0;
  Nonce from{};
  std::uint64_t nonce_at = 0;  ///< The address of `from` in the sender's process.
};
/// How many descriptors come with it.
std::size_t descriptors_of(Introduction::Kind kind) noexcept;

struct Visitor {
  static constexpr std::size_t kMostDescriptors = 2;

  Introduction introduction;
  pid_t process = 0;  ///< As seen from here; 0 if it is in a name space that is not.
  std::array<UniqueFd, kMostDescriptors> descriptors;
};

class Door {
 public:
  static Result<Door> open(const Nonce& nonce);

  int fd() const noexcept { return socket_.get(); }
  enum class Sent : std::uint8_t { done, later, nobody };
  /// Hands it and copies of the descriptors to whoever is behind the door `to`.
  Sent introduce(const Nonce& to,
                 const Introduction& introduction,
                 std::span<const int> descriptors) noexcept;
  /// Whether the process that opened the door is alive.
  static bool is_anybody_behind(const Nonce& door) noexcept;
  /// The next who waits; nobody, if none does.
  std::optional<Visitor> next() noexcept;

 private:
  explicit Door(UniqueFd socket) noexcept : socket_(std::move(socket)) {}

  UniqueFd socket_;
};

}  // namespace xylem::transport::shm
