// SPDX-License-Identifier: Apache-2.0
//
// Encoding and decoding of the handshake.
#include "bootstrap/handshake.h"

#include "xylem/base/check.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>

namespace xylem::runtime {
namespace {

constexpr std::string_view kMagic = "\x8cXYLEM\r\n";
constexpr std::size_t kVersionBytes = 20;
constexpr std::size_t kFactBytes = Handshake::kProofBytes - sizeof(Proof);
constexpr std::size_t kPublicKeyBytes = crypto_scalarmult_BYTES;
static_assert(kMagic.size() + sizeof(std::uint32_t) + kVersionBytes + kPublicKeyBytes ==
              Handshake::kPreambleBytes);
static_assert(2 * sizeof(std::uint32_t) + HostIdentity::kWireBytes == kFactBytes);

ByteVector make_preamble(const Dialect& dialect, const EphemeralKey& key) {
  ByteVector bytes;
  WireWriter writer(bytes);
  writer.raw(bytes_of(kMagic)).number(dialect.protocol);
  std::string version = dialect.library.substr(0, kVersionBytes - 1);
  version.resize(kVersionBytes, '\0');
  writer.raw(bytes_of(version)).raw(key.public_key());
  return bytes;
}

Dialect read_dialect(ByteSpan preamble) {
  WireReader reader(preamble.subspan(kMagic.size()));
  Dialect dialect;
  dialect.protocol = reader.number<std::uint32_t>();
  const std::string_view version = text_of(reader.raw(kVersionBytes));
  dialect.library = version.substr(0, version.find('\0'));
  // The text is shown on terminals, so it must not contain control characters.
  for (char& c : dialect.library) c = c > ' ' && c < 127 ? c : '?';
  return dialect;
}

const unsigned char* raw(ByteSpan bytes) noexcept {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}
unsigned char* raw(std::array<std::byte, 32>& bytes) noexcept {
  return reinterpret_cast<unsigned char*>(bytes.data());
}

}  // namespace

EphemeralKey::EphemeralKey() noexcept {
  XYLEM_CHECK(sodium_init() >= 0);
  randombytes_buf(bytes_.data(), bytes_.size());
}

EphemeralKey::~EphemeralKey() { sodium_memzero(bytes_.data(), bytes_.size()); }

std::array<std::byte, 32> EphemeralKey::public_key() const noexcept {
  std::array<std::byte, 32> key{};
  crypto_scalarmult_base(raw(key), bytes_.data());
  return key;
}

std::optional<std::array<std::byte, 32>> EphemeralKey::agree(
    ByteSpan peers_public_key) const noexcept {
  std::array<std::byte, 32> shared{};
  const bool is_one = peers_public_key.size() == kPublicKeyBytes &&
                      crypto_scalarmult(raw(shared), bytes_.data(), raw(peers_public_key)) == 0;
  if (!is_one) return std::nullopt;
  return shared;
}

Handshake::Handshake(Side side, Key key, const Member& self, Dialect dialect)
    : side_(side), key_(std::move(key)), self_(self), dialect_(std::move(dialect)) {}

ByteSpan Handshake::preamble() {
  if (mine_.empty()) mine_ = make_preamble(dialect_, ephemeral_);
  return mine_;
}

std::size_t Handshake::wants() const noexcept {
  switch (state_) {
    case State::greeting: return kPreambleBytes;
    case State::proving: return kProofBytes;
    case State::done: return 0;
  }
  return 0;
}

Status Handshake::receive(ByteSpan bytes, ByteVector& out) {
  XYLEM_CHECK(bytes.size() == wants() && !bytes.empty(), bytes.size(), wants());
  return state_ == State::greeting ? read_preamble(bytes, out) : read_proof(bytes, out);
}

Status Handshake::read_preamble(ByteSpan bytes, ByteVector& out) {
  if (text_of(bytes.first(kMagic.size())) != kMagic) {
    return failure(Code::unsupported, "it does not speak Xylem's protocol");
  }
  theirs_.assign(bytes.begin(), bytes.end());
  state_ = State::proving;
  const ByteSpan ours = preamble();  // make_proof() needs this side's preamble.
  if (side_ == Side::caller) {
    WireWriter(out).raw(make_proof());
  } else {
    WireWriter(out).raw(ours);
  }
  return {};
}

Status Handshake::read_proof(ByteSpan bytes, ByteVector& out) {
  const Side prover = side_ == Side::caller ? Side::callee : Side::caller;
  const ByteSpan facts = bytes.first(kFactBytes);
  if (!key_.verify(statement(prover, facts), bytes.subspan(kFactBytes))) {
    // The callee refuses a wrong proof by sending zeros instead of its own proof. Otherwise the
    // caller could not distinguish a refusal from the death of the callee.
    if (side_ == Side::callee) out.resize(out.size() + kProofBytes);
    return failure(Code::cancelled, "it does not know this job's secret");
  }
  WireReader reader(facts);
  peer_.rank = reader.number<std::uint32_t>();
  peer_.size = reader.number<std::uint32_t>();
  peer_.host = HostIdentity::read(reader);
  // The callee sends its proof before it compares versions: the caller needs this proof before it
  // reports a difference of versions.
  if (side_ == Side::callee) WireWriter(out).raw(make_proof());

  const Dialect theirs = read_dialect(theirs_);
  if (theirs.protocol != dialect_.protocol || theirs.library != dialect_.library) {
    return failure(
        Code::mismatch,
        fmt::format("rank {} runs Xylem {} (protocol {}), rank {} runs Xylem {} (protocol "
                    "{}): install one version everywhere",
                    peer_.rank, theirs.library, theirs.protocol, self_.rank, dialect_.library,
                    dialect_.protocol),
        peer_.rank);
  }
  if (peer_.size != self_.size) {
    return failure(
        Code::mismatch,
        fmt::format("rank {} was started in a job of {} ranks, rank {} in one of {}: give "
                    "all the same size",
                    peer_.rank, peer_.size, self_.rank, self_.size),
        peer_.rank);
  }
  XYLEM_TRY(agree_on_keys());
  state_ = State::done;
  return {};
}

/// Makes a key for each direction: a hash, keyed with `key_`, over both preambles and over the
/// secret that only the two ends share (EphemeralKey::agree()).
Status Handshake::agree_on_keys() {
  const auto shared = ephemeral_.agree(ByteSpan(theirs_).last(kPublicKeyBytes));
  if (!shared) return failure(Code::cancelled, "its key is none");
  const auto key_of = [&](Side sender) {
    ByteVector said = transcript(sender == Side::caller ? "caller's frames" : "callee's frames");
    WireWriter(said).raw(*shared);
    transport::SealKey key = key_.prove(said);
    sodium_memzero(said.data(), said.size());
    return key;
  };
  keys_ = {key_of(side_), key_of(side_ == Side::caller ? Side::callee : Side::caller)};
  return {};
}

ByteVector Handshake::transcript(std::string_view purpose) const {
  const bool i_call = side_ == Side::caller;
  ByteVector bytes;
  WireWriter(bytes).text(purpose).raw(i_call ? mine_ : theirs_).raw(i_call ? theirs_ : mine_);
  return bytes;
}

ByteVector Handshake::statement(Side prover, ByteSpan facts) const {
  // The prover's side and both preambles are included, so a proof can be neither reflected nor
  // replayed.
  ByteVector bytes = transcript(prover == Side::caller ? "caller" : "callee");
  WireWriter(bytes).raw(facts);
  return bytes;
}

ByteVector Handshake::make_proof() const {
  ByteVector facts;
  WireWriter writer(facts);
  writer.number(self_.rank).number(self_.size);
  self_.host.write(writer);
  const Proof proof = key_.prove(statement(side_, facts));
  ByteVector bytes = facts;
  WireWriter(bytes).raw(proof);
  return bytes;
}

}  // namespace xylem::runtime
