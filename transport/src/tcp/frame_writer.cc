// SPDX-License-Identifier: Apache-2.0
#include "tcp/frame_writer.h"

#include "xylem/base/check.h"
#include "xylem/base/copy.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace xylem::transport::tcp {

void FrameWriter::start(Connection& connection) {
  protection_ = connection.protection;
  if (protection_ != Protection::off) seal_.emplace(connection.cipher, connection.outgoing);
}

std::byte* FrameWriter::Slot::room(std::uint32_t bytes) {
  if (capacity < bytes) {
    memory = std::make_unique_for_overwrite<std::byte[]>(bytes);
    capacity = bytes;
  }
  return memory.get();
}

void FrameWriter::put(const FrameHead& head, const std::byte* body, Body how, Outgoing* owner) {
  XYLEM_CHECK(has_room(), count_, bytes_);
  Slot& slot = slots_[(first_ + count_) % kSlots];
  ++count_;
  bytes_ += head.body;
  slot.written = 0;
  slot.owner = owner;
  slot.body = body;
  slot.body_bytes = head.body;
  slot.head_bytes = sizeof head;
  slot.tag_bytes = 0;
  const auto* plain = reinterpret_cast<const std::byte*>(&head);
  if (seal_) {
    seal_->close({}, {plain, sizeof head}, slot.head.data(), slot.head.data() + sizeof head);
    slot.head_bytes += Seal::kTagBytes;
  } else {
    std::memcpy(slot.head.data(), plain, sizeof head);
  }
  if (head.body == 0) return;
  if (seal_ && protection_ == Protection::encrypt) {
    std::byte* const sealed = slot.room(head.body);
    seal_->close({}, {body, head.body}, sealed, slot.tag.data());
    slot.body = sealed;
    slot.tag_bytes = Seal::kTagBytes;
    return;
  }
  if (how == Body::copied) {
    std::byte* const copy = slot.room(head.body);
    copy_bytes(copy, body, head.body);
    slot.body = copy;
  }
  if (!seal_) return;
  seal_->close({slot.body, head.body}, {}, nullptr, slot.tag.data());
  slot.tag_bytes = Seal::kTagBytes;
}

void FrameWriter::disown(const Outgoing& owner) {
  for (std::uint32_t i = 0; i < count_; ++i) {
    Slot& slot = slots_[(first_ + i) % kSlots];
    if (slot.owner != &owner) continue;
    slot.owner = nullptr;
    if (slot.body == slot.memory.get()) continue;
    std::byte* const copy = slot.room(slot.body_bytes);
    copy_bytes(copy, slot.body, slot.body_bytes);
    slot.body = copy;
  }
}

void FrameWriter::drop_front() noexcept {
  bytes_ -= front().body_bytes;
  first_ = (first_ + 1) % kSlots;
  --count_;
}

Io FrameWriter::write_some(int fd) {
  if (count_ == 0) return Io::more;
  std::array<iovec, std::size_t{3} * kSlots> parts;
  std::size_t used = 0;
  std::uint64_t wanted = 0;
  for (std::uint32_t i = 0; i < count_; ++i) {
    Slot& slot = slots_[(first_ + i) % kSlots];
    std::uint32_t skip = slot.written;
    const auto add = [&](const std::byte* data, std::uint32_t bytes) {
      const std::uint32_t skipped = std::min(skip, bytes);
      skip -= skipped;
      if (bytes == skipped) return;
      parts[used++] = {const_cast<std::byte*>(data) + skipped, bytes - skipped};
      wanted += bytes - skipped;
    };
    add(slot.head.data(), slot.head_bytes);
    add(slot.body, slot.body_bytes);
    add(slot.tag.data(), slot.tag_bytes);
  }
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = used;
  const ssize_t sent = ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return Io::blocked;
    if (errno == EINTR) return Io::more;
    return errno == ECONNRESET || errno == EPIPE ? Io::ended : Io::broken;
  }
  auto left = static_cast<std::uint64_t>(sent);
  for (std::uint32_t i = 0; i < count_ && left > 0; ++i) {
    Slot& slot = slots_[(first_ + i) % kSlots];
    const auto of_slot =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(left, slot.size() - slot.written));
    slot.written += of_slot;
    left -= of_slot;
  }
  return std::cmp_less(sent, wanted) ? Io::blocked : Io::more;
}

}  // namespace xylem::transport::tcp
