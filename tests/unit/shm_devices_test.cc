// SPDX-License-Identifier: Apache-2.0
//
// Device memory over shm: it is shown to peers whose devices reach it, and copied through slots
// otherwise. The devices are made up; the host may not touch their memory.
#include "shm/segment.h"
#include "xylem/transport/device_memory.h"
#include "xylem/transport/shm.h"
#include "xylem/transport/views.h"

#include <gtest/gtest.h>

#include <sys/mman.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

namespace xylem::transport::shm {
namespace {

constexpr Memory kDevice{MemoryKind::cuda, 3};

/// A device with one allocation. The host sees its bytes only through `view()`.
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
  bool read(std::byte* target, const ConstRegion& source) noexcept override {
    ++reads;
    if (is_broken) return false;
    const auto offset = static_cast<const std::byte*>(source.data) - address_;
    std::memcpy(target, behind_.data() + offset, source.bytes);
    return true;
  }

  bool is_shareable = true, reaches_peers = true, is_broken = false;
  int opened = 0, reads = 0;

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
  /// Sends all of the memory, which the receiver's device is shown.
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
  // Some fit into an entry, some into a slot, and some into neither.
  static constexpr std::array<std::uint64_t, 5> kSizes{1, kInlineBytes, 4000, 200 << 10, kBytes};
  std::vector<std::unique_ptr<MadeUpDevice>> devices;
  std::array<std::unique_ptr<Transport>, 2> transports;
  EndpointId to[2] = {};
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
  EXPECT_EQ(sender().reads, 0);
}

TEST_F(ShmDevices, AreReadThroughTheHostByOthers) {
  for (const bool is_host : {true, false}) {
    receiver().reaches_peers = is_host;  // The CPU reads no device memory, whoever reaches it.
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
  EXPECT_GT(sender().reads, 0);
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

// Messages that get no number of a stream go through slots.
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
