// SPDX-License-Identifier: Apache-2.0
//
// Handshake: how two processes that are connected by TCP find out that they belong to one job. It
// reads and writes bytes in memory, and uses neither a socket nor a clock, so that it can be
// fuzzed.
//
//   caller → preamble   magic, protocol, library version, X25519 key of this connection  64 bytes
//   callee → preamble   the same, if the caller's preamble is valid
//   caller → proof      rank, size, host facts, keyed hash over all of it                84 bytes
//   callee → proof      the same; zeros if the caller's proof is wrong
//
//   greeting ──preamble──► proving ──proof──► done
//
// Before the peer's proof is verified, only its preamble is read, and a difference of versions is
// reported only after the proof. The sizes and the order of these messages never change, so that
// processes of two versions can always report each other's version.
//
// After the handshake both ends have keys that nobody else has. The keys are derived from the job's
// secret and from an exchange of keys that were made for this connection alone (X25519, RFC 7748).
// So a third party that learns the secret later cannot decrypt traffic that it recorded before.
#pragma once

#include "bootstrap/host_identity.h"
#include "bootstrap/payload_connection.h"
#include "bootstrap/secret.h"
#include "bootstrap/wire_format.h"
#include "xylem/base/status.h"
#include "xylem/base/version.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace xylem::runtime {

/// The protocol and library version of a process.
struct Dialect {
  std::uint32_t protocol = 3;
  std::string library = XYLEM_VERSION;  ///< Only the first 19 characters are sent.
};

/// A process's rank in its job, and its host.
struct Member {
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  HostIdentity host;
};

/// A private key of X25519; wiped by the destructor.
class EphemeralKey {
 public:
  EphemeralKey() noexcept;
  EphemeralKey(const EphemeralKey&) = default;
  EphemeralKey(EphemeralKey&&) = default;
  EphemeralKey& operator=(const EphemeralKey&) = default;
  EphemeralKey& operator=(EphemeralKey&&) = default;
  ~EphemeralKey();

  /// The public key, which is sent to the peer.
  std::array<std::byte, 32> public_key() const noexcept;
  /// The secret that only the two ends share; nothing if the peer's key is invalid (RFC 7748,
  /// section 6.1).
  std::optional<std::array<std::byte, 32>> agree(ByteSpan peers_public_key) const noexcept;

 private:
  std::array<unsigned char, 32> bytes_{};
};

class Handshake {
 public:
  static constexpr std::size_t kPreambleBytes = 64;
  static constexpr std::size_t kProofBytes = 84;

  enum class Side : std::uint8_t { caller, callee };
  enum class State : std::uint8_t { greeting, proving, done };

  Handshake(Side side, Key key, const Member& self, Dialect dialect = {});

  /// This side's preamble. Only the caller sends the result of this function. A callee gets its
  /// preamble from receive(), so that it computes no public key for a stranger that sends nothing,
  /// or invalid bytes.
  ByteSpan preamble();

  /// How many bytes receive() needs next; 0 when the handshake is done.
  std::size_t wants() const noexcept;
  /// Reads exactly wants() bytes, and appends the reply, which must be sent even on failure, to
  /// `out`. Fails with `unsupported` if the peer does not speak this protocol, with `cancelled` if
  /// it does not know the secret (in both cases it is a stranger), and with `mismatch` if it
  /// belongs to the job but has another version or size.
  Status receive(ByteSpan bytes, ByteVector& out);

  State state() const noexcept { return state_; }
  /// The peer. Valid once the handshake is done.
  const Member& peer() const noexcept { return peer_; }
  const FrameKeys& keys() const noexcept { return keys_; }

 private:
  Status read_preamble(ByteSpan bytes, ByteVector& out);
  Status read_proof(ByteSpan bytes, ByteVector& out);
  ByteVector make_proof() const;
  ByteVector statement(Side prover, ByteSpan facts) const;
  ByteVector transcript(std::string_view purpose) const;
  Status agree_on_keys();

  Side side_;
  State state_ = State::greeting;
  Key key_;
  Member self_, peer_;
  Dialect dialect_;
  EphemeralKey ephemeral_;
  FrameKeys keys_;
  ByteVector mine_, theirs_;
};

}  // namespace xylem::runtime
