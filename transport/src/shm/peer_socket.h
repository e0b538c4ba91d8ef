// SPDX-License-Identifier: Apache-2.0
//
// PeerSocket: a Unix socket without a file, over which transports connect to each other and pass
// descriptors of the memory that they share. Only messages from processes of the same user are
// accepted.
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

struct PeerMessage {
  enum class Kind : std::uint32_t {
    hello,  ///< "Read my ring `channel`." Carries descriptors: the sender's segment and eventfd.
    /// "I read your ring `channel`; its credits are my line `credit`." Carries the same
    /// descriptors.
    accept,
    share,   ///< "You may read my `allocation` of `bytes`." Carries the memory's descriptor.
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
/// The number of descriptors that a message carries.
std::size_t descriptors_of(PeerMessage::Kind kind) noexcept;

struct ReceivedMessage {
  static constexpr std::size_t kMostDescriptors = 2;

  PeerMessage message;
  /// The sender's process id as seen here; 0 if the sender is in a pid name space that is not
  /// visible here.
  pid_t process = 0;
  std::array<UniqueFd, kMostDescriptors> descriptors;
};

class PeerSocket {
 public:
  static Result<PeerSocket> open(const Nonce& nonce);

  int fd() const noexcept { return socket_.get(); }
  enum class Sent : std::uint8_t { done, later, no_such_peer };
  /// Sends the message, with copies of the descriptors, to the transport with the nonce `to`.
  Sent send(const Nonce& to, const PeerMessage& message, std::span<const int> descriptors) noexcept;
  /// Whether the process of the transport with this nonce is alive.
  static bool is_alive(const Nonce& nonce) noexcept;
  /// The next message that has arrived; nullopt if none has.
  std::optional<ReceivedMessage> receive() noexcept;

 private:
  explicit PeerSocket(UniqueFd socket) noexcept : socket_(std::move(socket)) {}

  UniqueFd socket_;
};

}  // namespace xylem::transport::shm
