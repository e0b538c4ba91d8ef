// SPDX-License-Identifier: Apache-2.0
//
// Keys derived from a job's secret. Each key serves one purpose, so a proof made for the store
// proves nothing to the control plane. The keys of the control plane and of payload serve one start
// only.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace xylem::runtime {

/// Random bytes for one use.
using Nonce = std::array<std::byte, 32>;
/// A keyed hash that proves the knowledge of a key.
using Proof = std::array<std::byte, 32>;

/// Random bytes from the system.
Nonce make_nonce() noexcept;

/// A key for keyed hashes (BLAKE2b of libsodium); wiped by the destructor.
class Key {
 public:
  /// A random key, which nobody else has.
  Key() noexcept;
  /// Derives a key from a job's secret. A different `purpose` or `context` results in a different
  /// key. The context contains the job's identity and, for the keys of the control plane and of
  /// payload, a random number of this start.
  Key(std::string_view secret,
      std::string_view purpose,
      std::span<const std::byte> context) noexcept;
  Key(const Key&) = default;
  Key(Key&&) = default;
  Key& operator=(const Key&) = default;
  Key& operator=(Key&&) = default;
  ~Key();

  Proof prove(std::span<const std::byte> statement) const noexcept;
  /// True if `proof` is the keyed hash of `statement`. Compares in constant time.
  bool verify(std::span<const std::byte> statement,
              std::span<const std::byte> proof) const noexcept;

 private:
  std::array<unsigned char, 32> bytes_{};
};

/// The secret of a job for which none was set. It is only as secret as the job's identity.
std::string secret_of_job(std::string_view job);

}  // namespace xylem::runtime
