// SPDX-License-Identifier: Apache-2.0
//
// Handshake: how two processes that were connected by TCP learn that they belong together. No
// socket, no clock: bytes in, bytes out, so that it can be fuzzed.
//
//   caller → preamble   magic, protocol, library version, X25519 key of this connection  64 bytes
//   callee → preamble   the same, to a caller whose preamble is one
//   caller → proof      rank, size, host facts, keyed hash over all of it                84 bytes
//   callee → proof      the same; zeros to a caller whose proof is wrong
//
//   greeting ──preamble──► proving ──proof──► done
//
// Nothing of the peer but its preamble is looked at before its proof is verified, and even a
// version that differs is believed only then. These sizes and this order never change, so that two
// versions can always name each other.
//
// Once done, both ends have keys for what follows that nobody else has: they come from the job's
// secret and from an exchange of keys that were made for this connection alone (X25519, RFC 7748),
// so a secret that becomes known later opens nothing that was recorded before.
#pragma once

#include "bootstrap/encounter.h"
#include "bootstrap/host_identity.h"
#include "bootstrap/secret.h"
#include "bootstrap/wire.h"
#include "xylem/base/status.h"
#include "xylem/base/version.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace xylem::runtime {

/// What a process speaks.
struct Dialect {
  std::uint32_t protocol = 3;
  std::string library = XYLEM_VERSION;  ///< At most 19 characters are sent.
};

/// Who a process is in its job.
struct Member {
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  HostIdentity host;
};

/// A private key of X25519; wiped when it ends.
class EphemeralKey {
 public:
  EphemeralKey() noexcept;
  EphemeralKey(const EphemeralKey&) = default;
  EphemeralKey(EphemeralKey&&) = default;
  EphemeralKey& operator=(const EphemeralKey&) = default;
  EphemeralKey& operator=(EphemeralKey&&) = default;
  ~EphemeralKey();

  /// For the peer.
  std::array<std::byte, 32> public_key() const noexcept;
  /// What only the two have in common; nothing if the peer's key is none (RFC 7748, section 6.1).
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

  /// The first bytes of a caller. A callee's come from receive(): strangers who say nothing, or
  /// anything, cost no key.
  ByteSpan preamble();

  /// How many bytes receive() wants next; 0 when done.
  std::size_t wants() const noexcept;
  /// Takes exactly wants() bytes; appends what to send to `out`. Errors: `unsupported`, the peer
  /// does not speak this protocol; `cancelled`, it does not know the secret (both: a stranger);
  /// `mismatch`, it belongs to the job but is of another version or size.
  Status receive(ByteSpan bytes, ByteVector& out);

  State state() const noexcept { return state_; }
  /// Once done.
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
