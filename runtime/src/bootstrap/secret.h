// SPDX-License-Identifier: Apache-2.0
//
// Keys: what a job's secret becomes. A key is derived for one purpose and one start, so a proof
// made for the store proves nothing to the control plane, and one made yesterday nothing today.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace xylem::runtime {

/// Bytes drawn at random for one use.
using Nonce = std::array<std::byte, 32>;
/// A keyed hash.
using Proof = std::array<std::byte, 32>;

/// Random bytes of the system.
Nonce make_nonce() noexcept;

/// A key for keyed hashes (BLAKE2b of libsodium); wiped when it ends.
class Key {
 public:
  /// One that nobody has.
  Key() noexcept;
  /// `context` is what else tells this use from others: the job, a nonce of this start.
  Key(std::string_view secret,
      std::string_view purpose,
      std::span<const std::byte> context) noexcept;
  Key(const Key&) = default;
  Key(Key&&) = default;
  Key& operator=(const Key&) = default;
  Key& operator=(Key&&) = default;
  ~Key();

  Proof prove(std::span<const std::byte> statement) const noexcept;
  /// In constant time.
  bool verify(std::span<const std::byte> statement,
              std::span<const std::byte> proof) const noexcept;

 private:
  std::array<unsigned char, 32> bytes_{};
};

/// A secret for a job that was given none: only as secret as the job's identity.
std::string secret_of_job(std::string_view job);

}  // namespace xylem::runtime
