// SPDX-License-Identifier: Apache-2.0
//
// The door of a transport: a socket without a file, at which others hand over their segments. Only
// processes of the same user are let in.
#pragma once

#include "shm/segment.h"
#include "xylem/base/status.h"
#include "xylem/base/unique_fd.h"

#include <cstdint>
#include <optional>

namespace xylem::transport::shm {

struct Introduction {
  enum class Kind : std::uint32_t {
    hello,   ///< "Read my ring `channel`."
    accept,  ///< "I read your ring `channel`; its credits are my line `credit`."
  };
  Kind kind = Kind::hello;
  std::uint32_t channel = 0;
  std::uint32_t credit = 0;
  Nonce from{};
};

struct Visitor {
  Introduction introduction;
  UniqueFd segment, wake;
};

class Door {
 public:
  static Result<Door> open(const Nonce& nonce);

  int fd() const noexcept { return socket_.get(); }
  enum class Sent : std::uint8_t { done, later, nobody };
  /// Hands copies of both descriptors to whoever is behind the door `to`.
  Sent introduce(const Nonce& to, const Introduction& introduction, int segment, int wake) noexcept;
  /// Whether the process that opened the door is alive.
  static bool is_anybody_behind(const Nonce& door) noexcept;
  /// The next who waits; nobody, if none does.
  std::optional<Visitor> next() noexcept;

 private:
  explicit Door(UniqueFd socket) noexcept : socket_(std::move(socket)) {}

  UniqueFd socket_;
};

}  // namespace xylem::transport::shm
