// SPDX-License-Identifier: Apache-2.0
//
// Seal, implemented with libsodium.
#include "xylem/transport/seal.h"

#include "xylem/base/check.h"

#include <sodium.h>

#include <cstring>

namespace xylem::transport {
namespace {

using Nonce = std::array<unsigned char, crypto_aead_aes256gcm_NPUBBYTES>;
static_assert(crypto_aead_aes256gcm_NPUBBYTES == crypto_aead_chacha20poly1305_ietf_NPUBBYTES);
static_assert(Seal::kTagBytes == crypto_aead_aes256gcm_ABYTES);
static_assert(Seal::kTagBytes == crypto_aead_chacha20poly1305_ietf_ABYTES);
static_assert(sizeof(SealKey) == crypto_aead_aes256gcm_KEYBYTES);
static_assert(sizeof(SealKey) == crypto_aead_chacha20poly1305_ietf_KEYBYTES);

/// libsodium requires a valid address even for zero bytes.
unsigned char* raw(std::byte* bytes) noexcept {
  static unsigned char nothing = 0;
  return bytes == nullptr ? &nothing : reinterpret_cast<unsigned char*>(bytes);
}
const unsigned char* raw(const std::byte* bytes) noexcept {
  return raw(const_cast<std::byte*>(bytes));
}

}  // namespace

struct Seal::State {
  Cipher cipher = Cipher::chacha20_poly1305;
  std::uint64_t number = 0;  ///< Number of the next frame.
  SealKey key{};
  crypto_aead_aes256gcm_state aes{};  ///< The expanded key.

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    sodium_memzero(key.data(), key.size());
    sodium_memzero(&aes, sizeof aes);
  }
  Nonce next_nonce() noexcept {
    Nonce nonce{};
    std::memcpy(nonce.data(), &number, sizeof number);
    ++number;
    return nonce;
  }
};

bool has_aes() noexcept { return sodium_init() >= 0 && crypto_aead_aes256gcm_is_available() != 0; }

Seal::Seal(Cipher cipher, const SealKey& key) : state_(std::make_unique<State>()) {
  XYLEM_CHECK(sodium_init() >= 0);
  state_->cipher = cipher;
  state_->key = key;
  if (cipher != Cipher::aes256_gcm) return;
  XYLEM_CHECK(has_aes());
  crypto_aead_aes256gcm_beforenm(&state_->aes, raw(key.data()));
}

Seal::Seal(Seal&&) noexcept = default;
Seal& Seal::operator=(Seal&&) noexcept = default;
Seal::~Seal() = default;

void Seal::close(std::span<const std::byte> clear,
                 std::span<const std::byte> plain,
                 std::byte* sealed,
                 std::byte* tag) noexcept {
  const Nonce nonce = state_->next_nonce();
  if (state_->cipher == Cipher::aes256_gcm) {
    crypto_aead_aes256gcm_encrypt_detached_afternm(
        raw(sealed), raw(tag), nullptr, raw(plain.data()), plain.size(), raw(clear.data()),
        clear.size(), nullptr, nonce.data(), &state_->aes);
  } else {
    crypto_aead_chacha20poly1305_ietf_encrypt_detached(
        raw(sealed), raw(tag), nullptr, raw(plain.data()), plain.size(), raw(clear.data()),
        clear.size(), nullptr, nonce.data(), raw(state_->key.data()));
  }
}

bool Seal::open(std::span<const std::byte> clear,
                std::span<const std::byte> sealed,
                std::byte* plain,
                const std::byte* tag) noexcept {
  const Nonce nonce = state_->next_nonce();
  if (state_->cipher == Cipher::aes256_gcm) {
    return crypto_aead_aes256gcm_decrypt_detached_afternm(
               raw(plain), nullptr, raw(sealed.data()), sealed.size(), raw(tag), raw(clear.data()),
               clear.size(), nonce.data(), &state_->aes) == 0;
  }
  return crypto_aead_chacha20poly1305_ietf_decrypt_detached(
             raw(plain), nullptr, raw(sealed.data()), sealed.size(), raw(tag), raw(clear.data()),
             clear.size(), nonce.data(), raw(state_->key.data())) == 0;
}

}  // namespace xylem::transport
