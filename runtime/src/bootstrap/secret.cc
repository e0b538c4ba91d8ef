// SPDX-License-Identifier: Apache-2.0
//
// Keyed hashes by libsodium.
#include "bootstrap/secret.h"

#include "bootstrap/wire_format.h"
#include "xylem/base/check.h"

#include <sodium.h>

namespace xylem::runtime {
namespace {

const unsigned char* raw(std::span<const std::byte> bytes) noexcept {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

void hash_into(std::span<unsigned char> out,
               std::span<const std::byte> message,
               std::span<const unsigned char> key) noexcept {
  const int failed = crypto_generichash(out.data(), out.size(), raw(message), message.size(),
                                        key.data(), key.size());
  XYLEM_CHECK(failed == 0, out.size(), key.size());
}

/// Initializes libsodium, which its first use requires. Further calls, also by other threads, are
/// harmless.
void require_sodium() noexcept { XYLEM_CHECK(sodium_init() >= 0); }

}  // namespace

Nonce make_nonce() noexcept {
  require_sodium();
  Nonce nonce;
  randombytes_buf(nonce.data(), nonce.size());
  return nonce;
}

Key::Key() noexcept {
  require_sodium();
  randombytes_buf(bytes_.data(), bytes_.size());
}

Key::Key(std::string_view secret,
         std::string_view purpose,
         std::span<const std::byte> context) noexcept {
  require_sodium();
  std::array<unsigned char, 32> root{};
  hash_into(root, bytes_of(secret), {});
  ByteVector statement;
  WireWriter(statement).text(purpose).raw(context);
  hash_into(bytes_, statement, root);
  sodium_memzero(root.data(), root.size());
}

Key::~Key() { sodium_memzero(bytes_.data(), bytes_.size()); }

Proof Key::prove(std::span<const std::byte> statement) const noexcept {
  Proof proof;
  hash_into({reinterpret_cast<unsigned char*>(proof.data()), proof.size()}, statement, bytes_);
  return proof;
}

bool Key::verify(std::span<const std::byte> statement,
                 std::span<const std::byte> proof) const noexcept {
  const Proof expected = prove(statement);
  return proof.size() == expected.size() &&
         sodium_memcmp(proof.data(), expected.data(), expected.size()) == 0;
}

std::string secret_of_job(std::string_view job) {
  const Proof proof = Key("xylem", "secret of a job", bytes_of(job)).prove({});
  std::string text(2 * proof.size() + 1, '\0');
  sodium_bin2hex(text.data(), text.size(), raw(proof), proof.size());
  text.pop_back();
  return text;
}

}  // namespace xylem::runtime
