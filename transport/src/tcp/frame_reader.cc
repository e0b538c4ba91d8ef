// SPDX-License-Identifier: Apache-2.0
#include "tcp/frame_reader.h"

#include "xylem/base/copy.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace xylem::transport::tcp {

void FrameReader::start(Connection& connection) {
  protection_ = connection.protection;
  if (protection_ != Protection::off) seal_.emplace(connection.cipher, connection.incoming);
  memory_ = std::make_unique_for_overwrite<std::byte[]>(kStaged);
  elsewhere_ = std::make_unique_for_overwrite<std::byte[]>(kLargestBody);
}

void FrameReader::redirect() {
  if (body_ != nullptr && body_ == elsewhere_.get()) return;
  if (body_ != nullptr) copy_bytes(elsewhere_.get(), body_, got_);
  body_ = elsewhere_.get();
}

/// Receives the rest of a body directly into its destination. The same system call reads the bytes
/// between this body and the next into `memory_`, so that the next body can be received directly,
/// too.
ssize_t FrameReader::receive(int fd, std::size_t& wanted) {
  if (part_ == Part::body && staged() == 0) {
    begin_ = end_ = 0;
    const std::size_t left = head_.body - got_;
    const std::size_t behind = (seal_ ? Seal::kTagBytes : 0) + head_bytes();
    std::array<iovec, 2> parts{{{body_ + got_, left}, {memory_.get(), behind}}};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    wanted = left + behind;
    const ssize_t got = ::recvmsg(fd, &message, MSG_DONTWAIT);
    if (got <= 0) return got;
    const auto in_body = std::min(static_cast<std::size_t>(got), left);
    got_ += static_cast<std::uint32_t>(in_body);
    end_ = static_cast<std::size_t>(got) - in_body;
    return got;
  }
  if (begin_ > 0) {
    std::memmove(memory_.get(), memory_.get() + begin_, staged());
    end_ -= begin_;
    begin_ = 0;
  }
  wanted = kStaged - end_;
  const ssize_t got = ::recv(fd, memory_.get() + end_, wanted, MSG_DONTWAIT);
  if (got > 0) end_ += static_cast<std::size_t>(got);
  return got;
}

Io FrameReader::read(int fd, FrameListener& listener, unsigned& frames) {
  // The number of reads is bounded, so that a peer that sends without pause does not delay other
  // peers.
  constexpr int kMostReads = 16;
  for (int i = 0; i < kMostReads; ++i) {
    std::size_t wanted = 0;
    const ssize_t got = receive(fd, wanted);
    if (got == 0) return Io::ended;
    if (got < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return Io::blocked;
      if (errno == EINTR) continue;
      return errno == ECONNRESET ? Io::ended : Io::broken;
    }
    if (!take_frames(listener, frames)) return Io::broken;
    if (std::cmp_less(got, wanted)) return Io::blocked;
  }
  return Io::more;
}

bool FrameReader::take_head(FrameListener& listener) {
  auto* const plain = reinterpret_cast<std::byte*>(&head_);
  const std::byte* const sealed = memory_.get() + begin_;
  if (!seal_) {
    std::memcpy(plain, sealed, sizeof head_);
  } else if (!seal_->open({}, {sealed, sizeof head_}, plain, sealed + sizeof head_)) {
    return false;
  }
  begin_ += head_bytes();
  body_ = nullptr;
  got_ = 0;
  if (head_.body > kLargestBody || !listener.on_head(head_, body_)) return false;
  if (head_.body > 0 && body_ == nullptr) redirect();
  return true;
}

bool FrameReader::take_tag() {
  if (!seal_) return true;
  const std::byte* const tag = memory_.get() + begin_;
  begin_ += Seal::kTagBytes;
  return protection_ == Protection::encrypt ? seal_->open({}, {body_, head_.body}, body_, tag)
                                            : seal_->open({body_, head_.body}, {}, nullptr, tag);
}

/// Moves the part of the body that is in `memory_` to its destination.
void FrameReader::take_body() {
  const auto taken = static_cast<std::uint32_t>(std::min<std::size_t>(staged(), head_.body - got_));
  copy_bytes(body_ + got_, memory_.get() + begin_, taken);
  begin_ += taken;
  got_ += taken;
}

/// Processes as much of a frame as is in `memory_`.
FrameReader::Taken FrameReader::take_frame(FrameListener& listener) {
  if (part_ == Part::head) {
    if (staged() < head_bytes()) return Taken::part;
    if (!take_head(listener)) return Taken::invalid;
    part_ = head_.body > 0 ? Part::body : Part::head;
  }
  if (part_ == Part::body) {
    take_body();
    if (got_ < head_.body) return Taken::part;
    part_ = seal_ ? Part::tag : Part::head;
  }
  if (part_ == Part::tag) {
    if (staged() < Seal::kTagBytes) return Taken::part;
    if (!take_tag()) return Taken::invalid;
    part_ = Part::head;
  }
  return listener.on_frame(head_) ? Taken::whole : Taken::invalid;
}

bool FrameReader::take_frames(FrameListener& listener, unsigned& frames) {
  Taken taken = Taken::whole;
  while ((taken = take_frame(listener)) == Taken::whole) ++frames;
  return taken == Taken::part;
}

}  // namespace xylem::transport::tcp
