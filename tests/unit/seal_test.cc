// SPDX-License-Identifier: Apache-2.0
//
// The protection of connections: sealed frames, the records of the control plane, and the keys that
// a handshake produces.
#include "xylem/transport/seal.h"

#include "runtime/src/bootstrap/control_link.h"
#include "runtime/src/bootstrap/control_seal.h"
#include "runtime/src/bootstrap/handshake.h"
#include "support/outcome.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>

namespace xylem::runtime {
namespace {

using transport::Cipher;
using transport::Seal;
using transport::SealKey;

SealKey some_key(std::uint8_t seed) {
  SealKey key{};
  for (std::size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::byte>(seed + 7 * i);
  return key;
}

ByteVector some_bytes(std::size_t size, unsigned seed = 1) {
  ByteVector bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 31 + seed);
  return bytes;
}

/// A frame as it is sent over a connection.
struct Frame {
  ByteVector clear, sealed, tag;
};

Frame close_frame(Seal& seal, const ByteVector& clear, const ByteVector& plain) {
  Frame frame{clear, ByteVector(plain.size()), ByteVector(Seal::kTagBytes)};
  seal.close(clear, plain, frame.sealed.data(), frame.tag.data());
  return frame;
}

bool open_frame(Seal& seal, const Frame& frame, ByteVector& plain) {
  plain.assign(frame.sealed.size(), std::byte{0});
  return seal.open(frame.clear, frame.sealed, plain.data(), frame.tag.data());
}

bool opens(Seal& seal, const Frame& frame) {
  ByteVector plain;
  return open_frame(seal, frame, plain);
}
bool opens(Seal&& seal, const Frame& frame) { return opens(seal, frame); }

class SealBy : public testing::TestWithParam<Cipher> {
 protected:
  void SetUp() override {
    if (GetParam() == Cipher::aes256_gcm && !transport::has_aes())
      GTEST_SKIP() << "this processor has no instructions for AES";
  }
  static Seal seal(std::uint8_t key = 1) { return Seal(GetParam(), some_key(key)); }
};

TEST_P(SealBy, OpensWhatWasSealed) {
  Seal sender = seal(), receiver = seal();
  for (const std::size_t size : {0U, 1U, 15U, 16U, 17U, 64U, 1000U, 65536U}) {
    for (const std::size_t clear_size : {0U, 1U, 4U, 40U}) {
      const ByteVector clear = some_bytes(clear_size, 3);
      const ByteVector plain = some_bytes(size);
      const Frame frame = close_frame(sender, clear, plain);
      EXPECT_EQ(frame.clear, clear);
      EXPECT_TRUE(size < 15 || frame.sealed != plain);
      ByteVector opened;
      ASSERT_TRUE(open_frame(receiver, frame, opened)) << size << " " << clear_size;
      EXPECT_EQ(opened, plain);
    }
  }
}

TEST_P(SealBy, SealsAndOpensInPlace) {
  Seal sender = seal(), receiver = seal();
  const ByteVector plain = some_bytes(300);
  ByteVector bytes = plain;
  ByteVector tag(Seal::kTagBytes);
  sender.close({}, bytes, bytes.data(), tag.data());
  EXPECT_NE(bytes, plain);
  ASSERT_TRUE(receiver.open({}, bytes, bytes.data(), tag.data()));
  EXPECT_EQ(bytes, plain);
}

TEST_P(SealBy, NothingIsSealedTheSameWayTwice) {
  Seal sender = seal();
  const ByteVector plain = some_bytes(32);
  std::set<ByteVector> seen;
  for (int i = 0; i < 100; ++i) {
    const Frame frame = close_frame(sender, {}, plain);
    EXPECT_TRUE(seen.insert(frame.sealed).second);
    EXPECT_TRUE(seen.insert(frame.tag).second);
  }
}

TEST_P(SealBy, EveryFlippedBitIsSeen) {
  Seal sender = seal();
  const Frame sent = close_frame(sender, some_bytes(8, 9), some_bytes(48));
  for (ByteVector Frame::*const part : {&Frame::clear, &Frame::sealed, &Frame::tag}) {
    for (std::size_t bit = 0; bit < (sent.*part).size() * 8; ++bit) {
      Frame frame = sent;
      (frame.*part)[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
      Seal receiver = seal();
      ByteVector plain;
      EXPECT_FALSE(open_frame(receiver, frame, plain)) << bit;
      EXPECT_EQ(plain, ByteVector(plain.size())) << "the plain text must not be shown";
    }
  }
  EXPECT_TRUE(opens(seal(), sent));
}

TEST_P(SealBy, BytesMayNotMoveBetweenTheParts) {
  Seal sender = seal();
  const Frame sent = close_frame(sender, some_bytes(8, 9), some_bytes(48));
  Frame longer = sent;
  longer.clear.push_back(longer.sealed.front());
  longer.sealed.erase(longer.sealed.begin());
  Frame shorter = sent;
  shorter.sealed.pop_back();
  Frame without = sent;
  without.clear.clear();
  for (const Frame& frame : {longer, shorter, without}) EXPECT_FALSE(opens(seal(), frame));
}

TEST_P(SealBy, ARepeatedSkippedOrMovedFrameIsSeen) {
  Seal sender = seal();
  std::vector<Frame> frames;
  for (unsigned i = 0; i < 4; ++i) frames.push_back(close_frame(sender, {}, some_bytes(20, i)));
  // Every order of the frames except the right one.
  std::vector<std::size_t> order = {0, 1, 2, 3};
  do {
    Seal receiver = seal();
    for (std::size_t at = 0; at < order.size(); ++at) {
      const bool is_next = order[at] == at;
      EXPECT_EQ(opens(receiver, frames[order[at]]), is_next);
      if (!is_next) break;
    }
  } while (std::ranges::next_permutation(order).found);
  Seal receiver = seal();
  EXPECT_TRUE(opens(receiver, frames[0]));
  EXPECT_FALSE(opens(receiver, frames[0])) << "repeated";
  Seal other = seal();
  EXPECT_TRUE(opens(other, frames[0]));
  EXPECT_FALSE(opens(other, frames[2])) << "a frame was left out";
}

TEST_P(SealBy, AnotherKeyOpensNothing) {
  Seal sender = seal(1);
  const Frame frame = close_frame(sender, some_bytes(4), some_bytes(20));
  EXPECT_FALSE(opens(seal(2), frame));
  SealKey almost = some_key(1);
  almost.back() ^= std::byte{1};
  EXPECT_FALSE(opens(Seal(GetParam(), almost), frame));
}

TEST_P(SealBy, GoesOnAfterItWasMoved) {
  Seal sender = seal(), receiver = seal();
  EXPECT_TRUE(opens(receiver, close_frame(sender, {}, some_bytes(20))));
  Seal moved = std::move(receiver);
  receiver = std::move(moved);
  EXPECT_TRUE(opens(receiver, close_frame(sender, {}, some_bytes(20))));
}

INSTANTIATE_TEST_SUITE_P(Ciphers,
                         SealBy,
                         testing::Values(Cipher::chacha20_poly1305, Cipher::aes256_gcm),
                         [](const auto& each) {
                           return each.param == Cipher::aes256_gcm ? "Aes" : "ChaCha";
                         });

TEST(Seal, OneCipherOpensNothingOfTheOther) {
  if (!transport::has_aes()) GTEST_SKIP() << "this processor has no instructions for AES";
  Seal sender(Cipher::aes256_gcm, some_key(1));
  Seal receiver(Cipher::chacha20_poly1305, some_key(1));
  EXPECT_FALSE(opens(receiver, close_frame(sender, {}, some_bytes(20))));
}

// --- Records of the control plane -----------------------------------------------------

TEST(ControlRecords, ArriveWholeHoweverTheyAreCut) {
  RecordWriter writer(some_key(1));
  ByteVector said;
  ByteVector stream;
  for (const std::size_t size : {1U, 0U, 5U, 64U, 300U}) {
    const ByteVector plain = some_bytes(size, static_cast<unsigned>(size));
    said.insert(said.end(), plain.begin(), plain.end());
    writer.write(stream, plain);
  }
  for (std::size_t step = 1; step <= stream.size(); ++step) {
    RecordReader reader(some_key(1));
    ByteVector plain;
    for (std::size_t at = 0; at < stream.size(); at += step) {
      const ByteSpan piece = ByteSpan(stream).subspan(at, std::min(step, stream.size() - at));
      ASSERT_TRUE(reader.read(piece, plain)) << step;
      // The reader returns only whole records.
      ASSERT_TRUE(std::equal(plain.begin(), plain.end(), said.begin()));
    }
    EXPECT_EQ(plain, said) << step;
  }
}

TEST(ControlRecords, CarryMoreThanARecordHolds) {
  for (const std::size_t size : {RecordReader::kLargest - 1, RecordReader::kLargest,
                                 RecordReader::kLargest + 1, 5 * RecordReader::kLargest}) {
    RecordWriter writer(some_key(1));
    RecordReader reader(some_key(1));
    const ByteVector said = some_bytes(size);
    ByteVector stream, plain;
    writer.write(stream, said);
    ASSERT_TRUE(reader.read(stream, plain));
    EXPECT_EQ(plain, said);
  }
}

/// A byte stream that consists of two records.
ByteVector two_records() {
  RecordWriter writer(some_key(1));
  ByteVector stream;
  writer.write(stream, some_bytes(20, 1));
  writer.write(stream, some_bytes(20, 2));
  return stream;
}

TEST(ControlRecords, EveryFlippedBitIsSeenAndNothingOfItIsShown) {
  const ByteVector sent = two_records();
  // If a high bit of the length is inverted, the length is invalid. If a low bit is inverted, the
  // reader waits for more bytes. `rest` contains these bytes, and then the reader detects the
  // change.
  const ByteVector rest(2 * RecordReader::kLargest);
  for (std::size_t bit = 0; bit < sent.size() * 8; ++bit) {
    ByteVector stream = sent;
    stream[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    RecordReader reader(some_key(1));
    ByteVector plain;
    Status status = reader.read(stream, plain);
    if (status) status = reader.read(rest, plain);
    EXPECT_FALSE(status) << bit;
    const bool is_in_first = bit < sent.size() * 4;
    EXPECT_EQ(plain, is_in_first ? ByteVector() : some_bytes(20, 1)) << bit;
  }
}

TEST(ControlRecords, ADamagedRecordIsAnErrorForEver) {
  ByteVector stream = two_records();
  stream[6] ^= std::byte{1};
  RecordReader reader(some_key(1));
  ByteVector plain;
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(reader.read(i == 0 ? stream : ByteVector(), plain)) << i;
}

TEST(ControlRecords, ALeftOutRecordIsAnErrorForEver) {
  const ByteVector stream = two_records();
  const ByteSpan second = ByteSpan(stream).last(stream.size() / 2);
  RecordReader reader(some_key(1));
  ByteVector plain;
  EXPECT_FALSE(reader.read(second, plain));
  // After the error, the reader must return nothing more, even if the missing record arrives later.
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(reader.read({}, plain)) << i;
  EXPECT_TRUE(plain.empty()) << plain.size();
}

TEST(ControlRecords, ARepeatedRecordIsRefused) {
  const ByteVector stream = two_records();
  const ByteSpan first = ByteSpan(stream).first(stream.size() / 2);
  RecordReader reader(some_key(1));
  ByteVector plain;
  EXPECT_TRUE(reader.read(first, plain));
  EXPECT_FALSE(reader.read(first, plain));
  EXPECT_EQ(plain, some_bytes(20, 1));
}

TEST(ControlRecords, ALengthBeyondTheLimitIsRefusedBeforeAnythingFollows) {
  for (const std::uint32_t size :
       {static_cast<std::uint32_t>(RecordReader::kLargest + 1), 0x80000000U, 0xffffffffU}) {
    ByteVector length;
    WireWriter(length).number(size);
    RecordReader reader(some_key(1));
    ByteVector plain;
    EXPECT_THAT(reader.read(length, plain), fails_with(std::to_string(size)));
    EXPECT_EQ(plain.capacity(), 0U) << "no memory is allocated for a wrong length";
    EXPECT_FALSE(reader.read(ByteVector(100), plain)) << "for ever";
  }
}

TEST(ControlRecords, TheOtherDirectionsKeyOpensNothing) {
  RecordWriter writer(some_key(1));
  RecordReader reader(some_key(2));
  ByteVector stream, plain;
  writer.write(stream, some_bytes(20));
  EXPECT_FALSE(reader.read(stream, plain));
}

TEST(ControlRecords, AMessageWhoseEndWasChangedIsNotDelivered) {
  // A frame of two records. The first record is unchanged, and the changed second record would
  // complete the frame.
  const ByteVector message = some_bytes(ControlPlane::kMaxMessage);
  ByteVector frame;
  write_frame(frame, MessageFrame{.origin = 1, .number = 1, .bytes = message});
  ASSERT_GT(frame.size(), RecordReader::kLargest);
  RecordWriter writer(some_key(2));
  ByteVector stream;
  writer.write(stream, frame);
  stream.back() ^= std::byte{1};

  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
  const UniqueFd sender(ends[1]);
  ControlLink link(UniqueFd{ends[0]}, {1, 2, {}}, {}, {some_key(1), some_key(2)});
  ASSERT_EQ(::send(sender.get(), stream.data(), stream.size(), 0),
            static_cast<ssize_t>(stream.size()));
  EXPECT_FALSE(link.receive());
  const auto heard = value_of(link.frames().next());
  EXPECT_FALSE(heard.has_value()) << "a message was accepted that nobody sent";
}

// --- Keys of a handshake --------------------------------------------------------------

Key job_key(std::string_view secret = "s") { return Key(secret, "test", {}); }

/// The two ends of a handshake. The test forwards their messages, and may change them.
struct Ends {
  Handshake caller{Handshake::Side::caller, job_key(), {0, 2, {}}};
  Handshake callee{Handshake::Side::callee, job_key(), {1, 2, {}}};

  void run() {
    ByteVector proof, answer;
    ASSERT_TRUE(callee.receive(caller.preamble(), answer));
    answer.clear();
    ASSERT_TRUE(caller.receive(callee.preamble(), proof));
    ASSERT_TRUE(callee.receive(proof, answer));
    ASSERT_TRUE(caller.receive(answer, proof));
    ASSERT_EQ(caller.state(), Handshake::State::done);
    ASSERT_EQ(callee.state(), Handshake::State::done);
  }
};

TEST(HandshakeKeys, BothEndsHaveThemAndNoTwoAreAlike) {
  std::set<SealKey> seen;
  for (int i = 0; i < 20; ++i) {
    Ends ends;
    ends.run();
    EXPECT_EQ(ends.caller.keys().outgoing, ends.callee.keys().incoming);
    EXPECT_EQ(ends.caller.keys().incoming, ends.callee.keys().outgoing);
    EXPECT_TRUE(seen.insert(ends.caller.keys().outgoing).second);
    EXPECT_TRUE(seen.insert(ends.caller.keys().incoming).second);
  }
  EXPECT_FALSE(seen.contains(SealKey{}));
}

TEST(HandshakeKeys, WhatOneEndSealsOnlyTheOtherOpens) {
  Ends ends;
  ends.run();
  RecordWriter writer(ends.caller.keys().outgoing);
  ByteVector stream, plain;
  writer.write(stream, bytes_of("hello"));
  EXPECT_FALSE(RecordReader(ends.caller.keys().incoming).read(stream, plain)) << "reflected";
  plain.clear();
  EXPECT_TRUE(RecordReader(ends.callee.keys().incoming).read(stream, plain));
  EXPECT_EQ(text_of(plain), "hello");
}

TEST(HandshakeKeys, AKeyThatIsExchangedOnTheWayIsSeen) {
  constexpr std::size_t kKeyAt = Handshake::kPreambleBytes - 32;
  for (const bool is_callers : {false, true}) {
    Ends ends;
    const EphemeralKey thiefs;
    Handshake& robbed = is_callers ? ends.caller : ends.callee;
    ByteVector changed(robbed.preamble().begin(), robbed.preamble().end());
    std::ranges::copy(thiefs.public_key(), changed.begin() + kKeyAt);
    ByteVector proof, answer;
    ASSERT_TRUE(
        ends.callee.receive(is_callers ? ByteSpan(changed) : ends.caller.preamble(), answer));
    ASSERT_TRUE(
        ends.caller.receive(is_callers ? ends.callee.preamble() : ByteSpan(changed), proof));
    answer.clear();
    EXPECT_EQ(ends.callee.receive(proof, answer).code(), Code::cancelled);
    EXPECT_EQ(ends.caller.receive(answer, proof).code(), Code::cancelled);
    EXPECT_EQ(ends.callee.keys().outgoing, SealKey{}) << "there are none";
  }
}

/// The points of small order. If one of them is used as public key, everyone can predict the shared
/// key: RFC 7748, section 7, and the list in libsodium.
std::vector<std::array<std::byte, 32>> weak_points() {
  const auto point = [](std::string_view hex) {
    std::array<std::byte, 32> bytes{};
    for (std::size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<std::byte>(std::stoi(std::string(hex.substr(2 * i, 2)), nullptr, 16));
    return bytes;
  };
  const std::string zeros(60, '0');
  const std::string full(60, 'f');
  return {point("0000" + zeros),
          point("0100" + zeros),
          point("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
          point("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
          point("ec" + full + "7f"),
          point("ed" + full + "7f"),
          point("ee" + full + "7f")};
}

TEST(HandshakeKeys, ThereIsNothingToAgreeOnWithAPointOfSmallOrder) {
  const EphemeralKey mine;
  const EphemeralKey theirs;
  EXPECT_EQ(mine.agree(theirs.public_key()), theirs.agree(mine.public_key()));
  EXPECT_TRUE(mine.agree(theirs.public_key()));
  for (const auto& point : weak_points()) EXPECT_FALSE(mine.agree(point));
  EXPECT_FALSE(mine.agree({}));
  EXPECT_FALSE(mine.agree(ByteVector(31)));
}

/// A caller that knows the secret and sends a given public key. Contains its preamble and proof.
struct HandmadeCaller {
  ByteVector preamble, proof;

  HandmadeCaller(const Key& key, Handshake& callee, ByteSpan public_key) {
    Handshake honest(Handshake::Side::caller, key, {0, 2, {}});
    preamble.assign(honest.preamble().begin(), honest.preamble().end());
    std::ranges::copy(public_key, preamble.end() - 32);
    ByteVector facts;
    WireWriter(facts).number(std::uint32_t{0}).number(std::uint32_t{2});
    WireWriter writer(facts);
    HostIdentity().write(writer);
    ByteVector statement;
    WireWriter(statement).text("caller").raw(preamble).raw(callee.preamble()).raw(facts);
    proof = facts;
    WireWriter(proof).raw(key.prove(statement));
  }
};

TEST(HandshakeKeys, NeedWhatNeitherTheSecretNorTheRecordTells) {
  const Key key = job_key();
  Handshake callee(Handshake::Side::callee, key, {1, 2, {}});
  const EphemeralKey ephemeral;
  const HandmadeCaller caller(key, callee, ephemeral.public_key());
  ByteVector out;
  ASSERT_TRUE(callee.receive(caller.preamble, out));
  ASSERT_TRUE(callee.receive(caller.proof, out));
  ASSERT_EQ(callee.state(), Handshake::State::done);

  const auto shared = ephemeral.agree(callee.preamble().last(32));
  ASSERT_TRUE(shared);
  for (const bool is_callers : {true, false}) {
    const SealKey& used = is_callers ? callee.keys().incoming : callee.keys().outgoing;
    // All data that an attacker has who has recorded both preambles and learns the secret later.
    ByteVector recorded;
    WireWriter(recorded)
        .text(is_callers ? "caller's frames" : "callee's frames")
        .raw(caller.preamble)
        .raw(callee.preamble());
    EXPECT_NE(used, key.prove(recorded));
    // With the shared key in addition, the result is the key that is used.
    WireWriter(recorded).raw(*shared);
    EXPECT_EQ(used, key.prove(recorded));
  }
}

TEST(HandshakeKeys, AMemberWithoutAKeyIsRefused) {
  // A caller that knows the secret, but sends an invalid public key.
  for (const auto& point : weak_points()) {
    const Key key = job_key();
    Handshake callee(Handshake::Side::callee, key, {1, 2, {}});
    const HandmadeCaller caller(key, callee, point);
    ByteVector out;
    ASSERT_TRUE(callee.receive(caller.preamble, out));
    EXPECT_THAT(callee.receive(caller.proof, out), fails_as(Code::cancelled, "key"));
    EXPECT_NE(callee.state(), Handshake::State::done);
    EXPECT_EQ(callee.keys().outgoing, SealKey{});
  }
}

}  // namespace
}  // namespace xylem::runtime
