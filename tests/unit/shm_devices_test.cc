// SPDX-License-Identifier: Apache-2.0
//
// Device memory over shm. If a peer's device can access the memory, the peer reads it in place. For
// other peers, it is copied through slots. The devices are made up, and the host cannot access
// their memory.
#include "shm/segment.h"
#include "xylem/transport/device_memory.h"
#include "xylem/transport/shm.h"
#include "xylem/transport/views.h"

#include <gtest/gtest.h>

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <thread>
#include <vector>

namespace xylem::transport::shm {
namespace {

constexpr Memory kDevice{MemoryKind::cuda, 3};

/// A device with one allocation. The host can access its bytes only through `view()`.
class MadeUpDevice final : public DeviceMemory {
 public:
  explicit MadeUpDevice(std::size_t bytes) : bytes_(bytes), behind_(bytes) {
    void* const reserved =
        mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    address_ = static_cast<std::byte*>(reserved);
  }
  MadeUpDevice(const MadeUpDevice&) = delete;
  MadeUpDevice& operator=(const MadeUpDevice&) = delete;
  ~MadeUpDevice() { munmap(address_, bytes_); }

  std::span<std::byte> view() { return behind_; }
  ConstRegion region(std::uint64_t bytes) const { return {address_, bytes, kDevice}; }

  bool share(const ConstRegion& source, DevicePlace& place) noexcept override {
    if (!is_shareable) return false;
    place.address = reinterpret_cast<std::uintptr_t>(source.data);
    return true;
  }
  const std::byte* open(const DevicePlace& place,
                        std::uint64_t /*bytes*/,
                        const Memory& reader) noexcept override {
    if (!reaches_peers || reader != kDevice) return nullptr;
    ++opened;
    return reinterpret_cast<const std::byte*>(place.address);  // NOLINT(performance-no-int-to-ptr)
  }
  void close(const DevicePlace& /*place*/, const Memory& /*reader*/) noexcept override { --opened; }
  void renew() noexcept override {}
  DeviceRead begin_read(std::byte* target, const ConstRegion& source) noexcept override {
    if (is_broken) return {};
    EXPECT_TRUE(is_lent(target));
    reads.push_back({target, static_cast<const std::byte*>(source.data) - address_, source.bytes});
    if (copies_at_once) copy_all();
    return {source.memory, reads.size()};
  }
  DeviceRead::State state_of(const DeviceRead& read) noexcept override {
    if (read.number == 0 || read.number == fails_at) return DeviceRead::State::failed;
    return read.number <= copied ? DeviceRead::State::done : DeviceRead::State::pending;
  }
  bool register_host(std::byte* memory, std::uint64_t bytes) noexcept override {
    lent = {memory, bytes};
    return true;
  }
  bool unregister_host(std::byte* memory) noexcept override {
    EXPECT_EQ(memory, lent.data());
    lent = {};
    return true;
  }

  /// Makes the next copy. It copies the bytes that its source contains at this time.
  void copy_one() {
    const Read& read = reads[copied];
    std::memcpy(read.target, behind_.data() + read.offset, read.bytes);
    ++copied;
  }
  void copy_all() {
    while (copied < reads.size()) copy_one();
  }
  bool is_lent(const std::byte* target) const {
    return target >= lent.data() && target < lent.data() + lent.size();
  }

  struct Read {
    std::byte* target = nullptr;
    std::ptrdiff_t offset = 0;
    std::uint64_t bytes = 0;
  };
  bool is_shareable = true, reaches_peers = true, is_broken = false;
  bool copies_at_once = true;
  std::uint64_t fails_at = ~std::uint64_t{0};  ///< The number of the copy that fails.
  int opened = 0;
  std::vector<Read> reads;
  std::atomic<std::size_t> copied = 0;
  std::span<std::byte> lent;

 private:
  std::size_t bytes_;
  std::byte* address_ = nullptr;
  std::vector<std::byte> behind_;
};

class ShmDevices : public testing::Test {
 protected:
  struct Counted : Operation {
    Counted() { done = count; }
    static void count(Operation& self) noexcept { ++static_cast<Counted&>(self).ended; }
    int ended = 0;
  };

  void SetUp() override {
    for (std::size_t i = 0; i < 2; ++i) {
      devices.push_back(std::make_unique<MadeUpDevice>(kBytes));
      transports[i] = *make_shm({.endpoints = 1, .devices = devices[i].get()});
    }
    for (std::size_t i = 0; i < 2; ++i) {
      to[i] = *transports[i]->connect(transports[1 - i]->address());
    }
    drive();
    for (std::size_t i = 0; i < kBytes; ++i) {
      sender().view()[i] = static_cast<std::byte>(i * 37 >> 3);
    }
  }
  void drive() {
    for (int round = 0; round < 300; ++round) {
      for (auto& transport : transports) {
        if (transport != nullptr) transport->progress();
      }
    }
  }
  MadeUpDevice& sender() { return *devices[0]; }
  MadeUpDevice& receiver() { return *devices[1]; }
  Posted send(std::uint64_t bytes, Counted& operation, Tag tag = 1) {
    return transports[0]->send(to[0], tag, sender().region(bytes), operation);
  }
  Posted receive(std::span<std::byte> target,
                 Counted& operation,
                 const Memory& reader,
                 Tag tag = 1) {
    return transports[1]->views()->recv_view(tag, {target.data(), target.size(), {}}, operation,
                                             reader);
  }
  void receive_copy(std::span<std::byte> target, Counted& operation, Tag tag = 1) {
    transports[1]->recv(tag, kExactMatch, {target.data(), target.size(), {}}, operation);
  }
  /// True if a message of this size needs more than one slot.
  bool is_in_parts(std::uint64_t bytes) { return bytes > transports[0]->views()->view_bytes(); }
  /// Sends the whole memory. The receiver's device gets a view of it.
  void show(Counted& sent, Counted& received) {
    std::vector<std::byte> unused(kBytes);
    receive(unused, received, kDevice);
    send(kBytes, sent);
    drive();
    ASSERT_EQ(received.ended, 1);
    ASSERT_NE(received.view.data, nullptr);
  }
  bool is_right(std::span<const std::byte> got) {
    return std::memcmp(got.data(), sender().view().data(), got.size()) == 0;
  }

  static constexpr std::size_t kBytes = 3 << 20;
  // Some sizes fit into an entry, some into a slot, and some into neither.
  static constexpr std::array<std::uint64_t, 5> kSizes{1, kInlineBytes, 4000, 200 << 10, kBytes};
  std::vector<std::unique_ptr<MadeUpDevice>> devices;
  std::array<std::unique_ptr<Transport>, 2> transports;
  EndpointId to[2] = {};
  std::atomic<bool> is_ending = false;
};

TEST_F(ShmDevices, AreSaidToBeReached) {
  EXPECT_TRUE(transports[0]->capabilities().sends_devices);
  EXPECT_FALSE(transports[0]->capabilities().receives_devices);
  EXPECT_FALSE((*make_shm({}))->capabilities().sends_devices);
}

TEST_F(ShmDevices, ShowTheirMemoryToDevices) {
  for (const std::uint64_t bytes : kSizes) {
    for (const bool is_early : {false, true}) {
      Counted sent, received;
      std::vector<std::byte> unused(bytes);
      if (is_early) {
        ASSERT_EQ(send(bytes, sent), Posted::pending);
        drive();
      }
      ASSERT_EQ(receive(unused, received, kDevice), Posted::pending);
      if (!is_early) {
        ASSERT_EQ(send(bytes, sent), Posted::pending);
      }
      drive();
      ASSERT_EQ(received.ended, 1);
      ASSERT_EQ(received.code, Code::ok);
      EXPECT_EQ(received.bytes, bytes);
      EXPECT_EQ(received.view.data, sender().region(0).data);
      EXPECT_TRUE(received.view.is_on_device);
      EXPECT_EQ(receiver().opened, 1);
      EXPECT_EQ(sent.ended, 0) << "the peer still reads it";
      EXPECT_TRUE(transports[1]->views()->release(received.view));
      drive();
      EXPECT_EQ(receiver().opened, 0);
      EXPECT_EQ(sent.ended, 1);
      EXPECT_EQ(sent.code, Code::ok);
    }
  }
  EXPECT_TRUE(sender().reads.empty());
}

TEST_F(ShmDevices, ReportTheirMessagesAtOnce) {
  constexpr std::uint32_t kMessages = 3;
  std::vector<std::byte> unused(kBytes);
  std::array<Counted, kMessages> sent, received;
  for (Counted& operation : received) receive(unused, operation, kDevice);
  for (Counted& operation : sent) send(kBytes, operation);
  EXPECT_EQ(transports[0]->views()->unread(to[0]), kMessages);
  transports[1]->progress();
  EXPECT_EQ(transports[0]->views()->unread(to[0]), 0U) << "only a later turn reports them";
  EXPECT_EQ(transports[0]->traffic(to[0]).announced, kMessages);
  for (const Counted& operation : received) transports[1]->views()->release(operation.view);
  drive();
}

TEST_F(ShmDevices, AreReadThroughTheHostByOthers) {
  for (const bool is_host : {true, false}) {
    receiver().reaches_peers = is_host;  // The CPU reads no device memory in any case.
    for (const std::uint64_t bytes : kSizes) {
      for (const bool is_early : {false, true}) {
        SCOPED_TRACE(testing::Message() << is_host << ", " << bytes << ", " << is_early);
        Counted sent, received;
        std::vector<std::byte> target(bytes);
        if (is_early) {
          send(bytes, sent);
          drive();
        }
        receive(target, received, is_host ? Memory{} : kDevice);
        if (!is_early) send(bytes, sent);
        drive();
        ASSERT_EQ(received.ended, 1);
        ASSERT_EQ(received.code, Code::ok);
        EXPECT_EQ(received.view.data, nullptr);
        EXPECT_TRUE(is_right(target));
        EXPECT_EQ(sent.ended, 1);
        EXPECT_EQ(sent.code, Code::ok);
      }
    }
  }
  EXPECT_FALSE(sender().reads.empty());
  EXPECT_EQ(receiver().opened, 0);
}

TEST_F(ShmDevices, SendMemoryThatNoPeerReachesThroughTheHost) {
  sender().is_shareable = false;
  for (const std::uint64_t bytes : kSizes) {
    Counted sent, received;
    std::vector<std::byte> target(bytes);
    receive(target, received, kDevice);
    const bool is_sent = send(bytes, sent) == Posted::done;
    drive();
    ASSERT_EQ(received.ended, 1) << bytes;
    EXPECT_TRUE(is_right(target)) << bytes;
    EXPECT_TRUE(is_sent || sent.ended == 1) << bytes;
  }
}

TEST_F(ShmDevices, ReceiveMessagesOfTheHostIntoTheTarget) {
  std::vector<std::byte> source(kBytes, std::byte{7}), target(kBytes);
  for (const std::uint64_t bytes : kSizes) {
    for (const bool is_early : {false, true}) {
      Counted sent, received;
      std::memset(target.data(), 0, bytes);
      bool is_done = false;
      const auto post = [&] {
        is_done = receive(std::span(target).first(bytes), received, kDevice) == Posted::done;
      };
      if (!is_early) post();
      transports[0]->send(to[0], 1, {source.data(), bytes, {}}, sent);
      drive();
      if (is_early) post();
      drive();
      ASSERT_TRUE(is_done || received.ended == 1) << bytes;
      ASSERT_EQ(received.code, Code::ok);
      EXPECT_EQ(received.view.data, nullptr);
      EXPECT_EQ(std::memcmp(target.data(), source.data(), bytes), 0) << bytes;
    }
  }
}

TEST_F(ShmDevices, TellTheReaderOfAMessageThatWasWithdrawn) {
  Counted sent, received;
  show(sent, received);
  transports[0]->cancel(sent);
  drive();
  EXPECT_EQ(sent.code, Code::cancelled);
  EXPECT_FALSE(transports[1]->views()->release(received.view));
  EXPECT_EQ(receiver().opened, 0);
}

TEST_F(ShmDevices, KeepAViewWhoseSenderEnds) {
  Counted sent, received;
  show(sent, received);
  transports[0]->close(to[0]);
  drive();
  EXPECT_EQ(sent.code, Code::peer_lost);
  transports[0].reset();
  drive();
  EXPECT_FALSE(transports[1]->views()->release(received.view));
}

TEST_F(ShmDevices, FailSendsIfTheyFail) {
  sender().is_broken = true;
  for (const std::uint64_t bytes : kSizes) {
    Counted sent, received;
    std::vector<std::byte> target(bytes);
    receive(target, received, Memory{});
    send(bytes, sent);
    drive();
    EXPECT_EQ(sent.code, Code::internal) << bytes;
    // Nothing was sent, or the message was withdrawn.
    EXPECT_TRUE(received.ended == 0 || received.code == Code::cancelled) << bytes;
    transports[1]->cancel(received);
    drive();
    EXPECT_EQ(received.ended, 1) << bytes;
  }
}

// ---- copies that take time ----

// During the copies, the sender makes other progress. The receiver gets the messages in order.
TEST_F(ShmDevices, KeepMessagesInOrderWhileTheyCopy) {
  sender().is_shareable = false;
  sender().copies_at_once = false;
  for (const std::uint64_t bytes : {8, 4000, 60 << 10}) {  // Each message is one piece.
    SCOPED_TRACE(bytes);
    std::vector<std::byte> targets[3];
    Counted sent[3], received[3];
    std::vector<std::byte> host(bytes, std::byte{7});
    for (std::size_t i = 0; i < 3; ++i) {
      targets[i].resize(bytes);
      receive_copy(targets[i], received[i]);
    }
    ASSERT_EQ(send(bytes, sent[0]), Posted::pending);
    transports[0]->send(to[0], 1, {host.data(), bytes, {}}, sent[1]);
    send(bytes, sent[2]);
    drive();
    EXPECT_TRUE(transports[0]->waits_for_device());
    EXPECT_FALSE(*transports[0]->arm()) << "nobody would wake it";
    EXPECT_EQ(sent[0].ended + received[0].ended + received[1].ended, 0);
    sender().copy_one();
    drive();
    EXPECT_EQ(received[0].ended, 1);
    EXPECT_TRUE(is_right(targets[0]));
    EXPECT_EQ(received[1].ended, 1);
    EXPECT_EQ(targets[1], host);
    EXPECT_EQ(received[2].ended, 0);
    sender().copy_all();
    drive();
    EXPECT_EQ(received[2].ended, 1);
    EXPECT_TRUE(is_right(targets[2]));
    EXPECT_EQ(sent[0].code, Code::ok);
    EXPECT_EQ(sent[2].ended, 1);
    EXPECT_FALSE(transports[0]->waits_for_device());
  }
}

TEST_F(ShmDevices, CopySeveralPiecesOfAMessageAtATime) {
  sender().copies_at_once = false;
  Counted sent, received;
  std::vector<std::byte> target(kBytes);
  receive_copy(target, received);
  send(kBytes, sent);
  std::size_t most = 0;
  while (received.ended == 0 && sender().copied < 1000) {
    drive();
    most = std::max(most, sender().reads.size() - sender().copied);
    EXPECT_EQ(sent.ended, received.ended);
    if (sender().copied < sender().reads.size()) sender().copy_one();
  }
  drive();
  EXPECT_GT(most, 1);
  EXPECT_TRUE(is_right(target));
  EXPECT_EQ(received.code, Code::ok);
  EXPECT_EQ(sent.ended, 1);
  EXPECT_EQ(sent.code, Code::ok);
}

// After a send has ended, its memory belongs to the user, so no copy may read it.
TEST_F(ShmDevices, EndCancelledSendsAfterTheirCopies) {
  sender().is_shareable = false;
  sender().copies_at_once = false;
  for (const std::uint64_t bytes : kSizes) {
    SCOPED_TRACE(bytes);
    Counted sent, received;
    std::vector<std::byte> target(bytes);
    receive_copy(target, received);
    ASSERT_EQ(send(bytes, sent), Posted::pending);
    drive();
    ASSERT_GT(sender().reads.size(), sender().copied);
    transports[0]->cancel(sent);
    drive();
    EXPECT_EQ(sent.ended, 0);
    sender().copy_all();
    drive();
    EXPECT_EQ(sent.ended, 1);
    EXPECT_EQ(received.ended, 1);
    if (bytes == kBytes) {
      EXPECT_EQ(sent.code, Code::cancelled);
      EXPECT_EQ(received.code, Code::cancelled);
    } else {  // The whole message was already under way.
      EXPECT_EQ(sent.code, Code::ok);
      EXPECT_EQ(received.code, Code::ok);
      EXPECT_TRUE(is_right(target));
    }
    EXPECT_EQ(sender().reads.size(), sender().copied) << "no more is copied";
  }
}

TEST_F(ShmDevices, EndSendsToClosedEndpointsAfterTheirCopies) {
  sender().copies_at_once = false;
  Counted sent, received;
  std::vector<std::byte> target(kBytes);
  receive_copy(target, received);
  send(kBytes, sent);
  drive();
  transports[0]->close(to[0]);
  drive();
  EXPECT_EQ(sent.ended, 0);
  EXPECT_TRUE(transports[0]->waits_for_device());
  sender().copy_all();
  drive();
  EXPECT_EQ(sent.ended, 1);
  EXPECT_EQ(sent.code, Code::peer_lost);
}

TEST_F(ShmDevices, EndSendsToPeersThatEndAfterTheirCopies) {
  sender().copies_at_once = false;
  Counted sent, received;
  std::vector<std::byte> target(kBytes);
  receive_copy(target, received);
  send(kBytes, sent);
  drive();
  transports[1]->cancel(received);
  transports[1]->close(to[1]);
  transports[1].reset();
  drive();
  EXPECT_EQ(sent.ended, 0);
  sender().copy_all();
  drive();
  EXPECT_EQ(sent.ended, 1);
  EXPECT_EQ(sent.code, Code::peer_lost);
}

// Messages after a message that cannot be copied still arrive.
TEST_F(ShmDevices, FailSendsWhoseCopiesFailLater) {
  sender().is_shareable = false;
  sender().copies_at_once = false;
  for (const std::uint64_t bytes : kSizes) {
    SCOPED_TRACE(bytes);
    const std::vector<std::byte> other(100, std::byte{9});
    std::vector<std::byte> target(bytes), other_target(100);
    Counted sent, received, other_sent, other_received;
    receive_copy(target, received);
    receive_copy(other_target, other_received, 2);
    sender().fails_at = sender().reads.size() + 1;
    send(bytes, sent);
    drive();
    EXPECT_EQ(sent.ended, is_in_parts(bytes) ? 0 : 1) << "other parts are being copied";
    transports[0]->send(to[0], 2, {other.data(), other.size(), {}}, other_sent);
    sender().copy_all();
    drive();
    EXPECT_EQ(sent.ended, 1);
    EXPECT_EQ(sent.code, Code::internal);
    EXPECT_TRUE(received.ended == 0 || received.code == Code::cancelled);
    EXPECT_EQ(other_received.ended, 1);
    EXPECT_EQ(other_target, other);
    transports[1]->cancel(received);
    drive();
    EXPECT_EQ(received.ended, 1);
  }
}

TEST_F(ShmDevices, ArePutAwayOnceTheyHaveCopied) {
  sender().copies_at_once = false;
  EXPECT_FALSE(sender().lent.empty());
  Counted sent, received;
  std::vector<std::byte> target(4000);
  sender().is_shareable = false;
  send(4000, sent);
  drive();
  std::jthread device([this] {
    while (!is_ending) std::this_thread::yield();
    sender().copy_all();
  });
  transports[0]->close(to[0]);
  is_ending = true;
  transports[0].reset();
  EXPECT_TRUE(sender().lent.empty());
  EXPECT_EQ(sender().copied, 1);
}

// If all stream numbers are in use, messages go through slots.
TEST_F(ShmDevices, ShowMoreMessagesThanThereAreStreams) {
  constexpr std::uint32_t kMessages = 3 * kStreams;
  std::vector<Counted> sent(kMessages), received(kMessages);
  std::vector<std::vector<std::byte>> targets(kMessages, std::vector<std::byte>(4000));
  for (std::uint32_t i = 0; i < kMessages; ++i) send(4000, sent[i], i);
  drive();
  for (std::uint32_t i = 0; i < kMessages; ++i) receive(targets[i], received[i], kDevice, i);
  std::uint32_t shown = 0;
  for (std::uint32_t i = 0; i < kMessages; ++i) {
    drive();
    ASSERT_EQ(received[i].bytes, 4000) << i;
    if (received[i].view.data == nullptr) {
      EXPECT_TRUE(is_right(targets[i])) << i;
      continue;
    }
    ++shown;
    EXPECT_TRUE(transports[1]->views()->release(received[i].view));
  }
  EXPECT_EQ(shown, kStreams / 2);
  drive();
  EXPECT_EQ(receiver().opened, 0);
}

}  // namespace
}  // namespace xylem::transport::shm
