// SPDX-License-Identifier: Apache-2.0
//
// Deadlines, owned descriptors, files that users name, memory kinds and hash mixing.
#include "support/file_size_limit.h"
#include "support/temporary_directory.h"
#include "xylem/base/clock.h"
#include "xylem/base/file.h"
#include "xylem/base/hash.h"
#include "xylem/base/memory.h"
#include "xylem/base/unique_fd.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace xylem {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;

TEST(Deadline, InThePastHasPassedAndLeavesNothing) {
  for (const auto wait : {Clock::duration(0), Clock::duration(-1), Clock::duration(hours(-1))}) {
    const auto deadline = Deadline::after(wait);
    EXPECT_TRUE(deadline.passed());
    EXPECT_EQ(deadline.left(), Clock::duration::zero());
    EXPECT_EQ(deadline.left_ms(), 0);
  }
}

TEST(Deadline, InTheFutureHasNotPassed) {
  const auto deadline = Deadline::after(hours(1));
  EXPECT_FALSE(deadline.passed());
  EXPECT_GT(deadline.left(), std::chrono::minutes(59));
  EXPECT_LE(deadline.left_ms(), 3'600'000);
  EXPECT_GT(deadline.left_ms(), 3'540'000);
}

TEST(Deadline, RoundsUpSoThatPollDoesNotSpin) {
  const auto deadline = Deadline::after(microseconds(300));
  // If the deadline has not passed here, it had not passed either when left_ms() was called.
  const int milliseconds_left = deadline.left_ms();
  if (!deadline.passed()) {
    EXPECT_EQ(milliseconds_left, 1);
  }
}

TEST(Deadline, LongestWaitDoesNotOverflow) {
  const auto deadline = Deadline::after(Clock::duration::max());
  EXPECT_EQ(deadline.point(), Clock::time_point::max());
  EXPECT_FALSE(deadline.passed());
  EXPECT_EQ(deadline.left_ms(), std::numeric_limits<int>::max());
}

TEST(Deadline, EarlierOfTwo) {
  const auto soon = Deadline::after(milliseconds(1));
  const auto late = Deadline::after(hours(1));
  EXPECT_EQ(earlier(soon, late).point(), soon.point());
  EXPECT_EQ(earlier(late, soon).point(), soon.point());
}

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

UniqueFd open_null() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

TEST(UniqueFd, ClosesAtTheEnd) {
  int number = -1;
  {
    const UniqueFd fd = open_null();
    number = fd.get();
    EXPECT_TRUE(fd);
    EXPECT_TRUE(is_open(number));
  }
  EXPECT_FALSE(is_open(number));
}

TEST(UniqueFd, EmptyOwnsNothing) {
  UniqueFd fd;
  EXPECT_FALSE(fd);
  EXPECT_EQ(fd.get(), -1);
  fd.reset();
  EXPECT_EQ(fd.release(), -1);
}

TEST(UniqueFd, ZeroIsADescriptor) {
  UniqueFd fd(0);
  EXPECT_TRUE(fd);
  EXPECT_EQ(fd.release(), 0);
}

TEST(UniqueFd, MovingTransfersTheDescriptor) {
  UniqueFd first = open_null();
  const int number = first.get();
  UniqueFd second(std::move(first));
  EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move): the state after a move is the subject
  EXPECT_EQ(second.get(), number);

  UniqueFd third = open_null();
  const int replaced = third.get();
  third = std::move(second);
  EXPECT_EQ(third.get(), number);
  EXPECT_FALSE(is_open(replaced));
  EXPECT_TRUE(is_open(number));
}

TEST(UniqueFd, AssignmentToItselfKeepsTheDescriptor) {
  UniqueFd fd = open_null();
  UniqueFd& same = fd;
  const int number = fd.get();
  fd = std::move(same);
  EXPECT_EQ(fd.get(), number);
  EXPECT_TRUE(is_open(number));
}

TEST(UniqueFd, ReleaseKeepsTheDescriptorOpen) {
  UniqueFd fd = open_null();
  const int number = fd.release();
  EXPECT_FALSE(fd);
  EXPECT_TRUE(is_open(number));
  fd.reset(number);
}

// --- Files that users name ------------------------------------------------------

class NamedFile : public ::testing::Test {
 protected:
  static Deadline soon() { return Deadline::after(std::chrono::seconds(20)); }
  /// Returns the reason for which a file cannot be read; empty if it can be read.
  static std::string refusal(const std::string& path, Bytes most = {100}) {
    const auto content = read_regular_file(path, most, soon());
    EXPECT_TRUE(content || content.code() == Code::invalid_argument);
    return std::string(content.status().message());
  }
  std::string path(const std::string& name) const { return directory.path() + "/" + name; }

  const test::TemporaryDirectory directory;
};

TEST_F(NamedFile, IsReadWholeIfItIsRegularAndNotTooLong) {
  const std::string file = directory.write("file", std::string(100, 'x'));
  EXPECT_EQ(read_regular_file(file, {100}, soon())->value(), std::string(100, 'x'));
  EXPECT_EQ(refusal(file, {99}), "it must be a file of at most 99 B");
  EXPECT_EQ(read_regular_file(path("none"), {100}, soon())->has_value(), false);
  EXPECT_EQ(refusal(file + "/below"), "cannot read it (Not a directory)");
  // For files in /proc, the system reports the size 0.
  EXPECT_THAT(read_regular_file("/proc/self/status", {1 << 20}, soon())->value(),
              ::testing::HasSubstr("VmSize"));
  EXPECT_EQ(refusal("/proc/self/status", {10}), "it must be a file of at most 10 B");
}

TEST_F(NamedFile, OfAnotherKindIsRefusedAtOnce) {
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  ASSERT_LT(path("socket").size(), sizeof address.sun_path);
  path("socket").copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(refusal(path("fifo")), "it must be a regular file, not a FIFO");
  EXPECT_EQ(refusal(path("socket")), "it must be a regular file, not a socket");
  EXPECT_EQ(refusal("/dev/zero"), "it must be a regular file, not a device");
  EXPECT_EQ(refusal(directory.path()), "it must be a regular file, not a directory");
}

TEST_F(NamedFile, WithALeaseOfAnotherProcessIsWaitedForUntilTheDeadline) {
  const std::string file = directory.write("file", "text");
  const UniqueFd holder(::open(file.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::fcntl(holder.get(), F_SETSIG, SIGURG), 0);  // A signal that the process ignores.
  ASSERT_EQ(::fcntl(holder.get(), F_SETLEASE, F_WRLCK), 0);
  const auto late = read_regular_file(file, {100}, Deadline::after(milliseconds(30)));
  EXPECT_THAT(late.status().to_string(), ::testing::HasSubstr("temporarily unavailable"));
  std::thread releases([&] { ::fcntl(holder.get(), F_SETLEASE, F_UNLCK); });
  EXPECT_EQ(read_regular_file(file, {100}, soon())->value_or(""), "text");
  releases.join();
}

TEST_F(NamedFile, OnTheCommandLineMayBeAPipeWithAnEnd) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const UniqueFd reader(ends[0]);
  const std::string sent(300'000, 'x');  // More than fits into the pipe.
  std::thread writes([&] {
    const UniqueFd writer(ends[1]);
    std::string_view rest = sent;
    while (!rest.empty()) {
      const ssize_t written = ::write(writer.get(), rest.data(), rest.size());
      if (written <= 0) break;
      rest.remove_prefix(static_cast<std::size_t>(written));
    }
  });
  const std::string pipe = "/dev/fd/" + std::to_string(reader.get());
  const auto got = read_any_file(pipe, {1 << 20});
  writes.join();
  EXPECT_TRUE(got && *got == sent);
  EXPECT_EQ(read_any_file("/dev/zero", {1 << 20}).status().message(),
            "it must be a file of at most 1 MiB");
}

TEST_F(NamedFile, IsWrittenWithoutSignalsThatEndTheProcess) {
  const UniqueFd file(::open(path("file").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  ::close(ends[0]);
  const UniqueFd pipe(ends[1]);
  int beyond = 0, unread = 0;
  std::string text;
  {
    const test::FileSizeLimit limit(1000);
    const WriteSignalsBlocked blocked;
    if (::ftruncate(file.get(), 1001) != 0) beyond = errno;
    if (::write(pipe.get(), "x", 1) != 1) unread = errno;
    text = write_error_text(beyond);
  }
  EXPECT_EQ(beyond, EFBIG);
  EXPECT_EQ(unread, EPIPE);
  EXPECT_THAT(text, ::testing::HasSubstr("1000 bytes: raise ulimit -f"));
  sigset_t mask, pending;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  ::sigpending(&pending);
  for (const int signal : {SIGXFSZ, SIGPIPE}) {
    EXPECT_FALSE(::sigismember(&mask, signal)) << "the mask is as it was";
    EXPECT_FALSE(::sigismember(&pending, signal));
  }
}

TEST(Memory, DefaultsToTheHost) {
  EXPECT_EQ(Memory{}.kind, MemoryKind::host);
  EXPECT_EQ(Memory{}, (Memory{MemoryKind::host, -1}));
  EXPECT_NE((Memory{MemoryKind::cuda, 0}), (Memory{MemoryKind::cuda, 1}));
}

TEST(Memory, EveryKindHasItsOwnName) {
  std::set<std::string_view> names;
  constexpr int kLast = static_cast<int>(MemoryKind::rocm);
  for (int kind = 0; kind <= kLast; ++kind) names.insert(name(static_cast<MemoryKind>(kind)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(kLast) + 1);
  EXPECT_EQ(name(MemoryKind::cuda_managed), "cuda_managed");
  EXPECT_EQ(name(static_cast<MemoryKind>(kLast + 1)), "unknown");
}

TEST(Hash, DependsOnOrderLengthAndSeed) {
  EXPECT_NE(combine(combine(0, 1), 2), combine(combine(0, 2), 1));
  EXPECT_NE(hash_text("ab"), hash_text("ba"));
  EXPECT_NE(hash_text(""), hash_text(std::string_view("\0", 1)));
  EXPECT_NE(hash_text("ab", 1), hash_text("ab", 2));
  static_assert(hash_text("xylem") == hash_text("xylem"));
}

TEST(Hash, OneBitOfInputChangesAboutHalfOfTheOutput) {
  for (int bit = 0; bit < 64; ++bit) {
    const auto difference = mix(0x1234567) ^ mix(0x1234567 ^ (std::uint64_t{1} << bit));
    EXPECT_GT(__builtin_popcountll(difference), 12) << bit;
  }
}

}  // namespace
}  // namespace xylem
