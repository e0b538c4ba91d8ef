// SPDX-License-Identifier: Apache-2.0
//
// Handshake: how two processes that were connected by TCP learn that they belong together. No
// socket, no clock: bytes in, bytes out, so that it can be fuzzed.
//
//   both   → preamble   magic, protocol, library version, nonce                      64 bytes
//   caller → proof      rank, size, host facts, keyed hash over all of it            84 bytes
//   callee → proof      the same; zeros to a caller whose proof is wrong
//
//   greeting ──preamble──► proving ──proof──► done
//
// Nothing of the peer but its preamble is looked at before its proof is verified, and even a
// version that differs is believed only then. These sizes and this order never change, so that two
// versions can always name each other.
#pragma once

#include "bootstrap/host_identity.h"
#include "bootstrap/secret.h"
#include "bootstrap/wire.h"
#include "xylem/base/status.h"
#include "xylem/base/version.h"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace xylem::runtime {

/// What a process speaks.
struct Dialect {
  std::uint32_t protocol = 1;
  std::string library = XYLEM_VERSION;  ///< At most 19 characters are sent.
};

/// Who a process is in its job.
struct Member {
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  HostIdentity host;
};

class Handshake {
 public:
  static constexpr std::size_t kPreambleBytes = 64;
  static constexpr std::size_t kProofBytes = 84;

  enum class Side : std::uint8_t { caller, callee };
  enum class State : std::uint8_t { greeting, proving, done };

  Handshake(Side side, Key key, const Member& self, Dialect dialect = {});

  /// The first bytes to send.
  ByteSpan preamble() const noexcept { return mine_; }

  /// How many bytes receive() wants next; 0 when done.
  std::size_t wants() const noexcept;
  /// Takes exactly wants() bytes; appends what to send to `out`. Errors: `unsupported`, the peer
  /// does not speak this protocol; `cancelled`, it does not know the secret (both: a stranger);
  /// `mismatch`, it belongs to the job but is of another version or size.
  Status receive(ByteSpan bytes, ByteVector& out);

  State state() const noexcept { return state_; }
  /// Once done.
  const Member& peer() const noexcept { return peer_; }

 private:
  Status read_preamble(ByteSpan bytes, ByteVector& out);
  Status read_proof(ByteSpan bytes, ByteVector& out);
  ByteVector make_proof() const;
  ByteVector statement(Side prover, ByteSpan facts) const;

  Side side_;
  State state_ = State::greeting;
  Key key_;
  Member self_, peer_;
  Dialect dialect_;
  ByteVector mine_, theirs_;
};

}  // namespace xylem::runtime
