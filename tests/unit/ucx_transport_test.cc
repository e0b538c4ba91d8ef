// SPDX-License-Identifier: Apache-2.0
//
// Properties that only the UCX transport has: its reach in spite of the environment, its devices,
// and errors when it is created.
#include "support/outcome.h"
#include "transport/src/ucx/api.h"
#include "unit/transport_fixture.h"
#include "xylem/transport/ucx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace {

/// The settings that the transport has passed to UCX since this map was cleared. Settings that UCX
/// reads from the environment are not included.
std::map<std::string, std::string>& settings_given() {
  static std::map<std::string, std::string> given;
  return given;
}

decltype(&ucp_config_modify) modify_config = nullptr;

/// Replaces a function of UCX: records a setting, and calls UCX's function.
ucs_status_t note_setting(ucp_config_t* config, const char* name, const char* value) {
  settings_given()[name] = value;
  return modify_config(config, name, value);
}

}  // namespace

namespace xylem::transport::testing {
namespace {

using ::testing::HasSubstr;

/// Sets an environment variable while the object exists.
class Environment {
 public:
  Environment(std::string name, const std::string& value) : name_(std::move(name)) {
    ::setenv(name_.c_str(), value.c_str(), 1);
  }
  ~Environment() { ::unsetenv(name_.c_str()); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::string name_;
};

bool is_older_than(unsigned major, unsigned minor) {
  unsigned its_major = 0, its_minor = 0, release = 0;
  EXPECT_TRUE(ucx::open_api());
  ucx::api().ucp_get_version(&its_major, &its_minor, &release);
  return std::pair(its_major, its_minor) < std::pair(major, minor);
}

UcxOptions of(UcxReach reach) {
  UcxOptions options;
  options.reach = reach;
  return options;
}

// Sends a large message between two transports with these options. Returns the lanes that UCX has
// used.
std::vector<std::string> lanes_used(const UcxOptions& options) {
  auto a = make_ucx(options, Logger());
  auto b = make_ucx(options, Logger());
  if (!a || !b) return {a.status().to_string()};
  auto to_b = (*a)->connect((*b)->address());
  if (!to_b) return {to_b.status().to_string()};
  const auto source = pattern(1 << 20, 1);
  std::vector<std::byte> target(source.size());
  Tracked sent;
  Tracked received;
  recv(**b, 1, target.data(), target.size(), received);
  send(**a, *to_b, 1, source.data(), source.size(), sent);
  EXPECT_TRUE(drive({a->get(), b->get()}, [&] { return sent.ended() && received.ended(); }));
  EXPECT_EQ(source, target);
  std::vector<std::string> lanes;
  for (const PhysicalPath& lane : (*a)->paths(*to_b)) lanes.push_back(lane.transport);
  (*a)->close(*to_b);
  return lanes;
}

bool only(const std::vector<std::string>& lanes, const std::vector<std::string>& allowed) {
  return !lanes.empty() && std::all_of(lanes.begin(), lanes.end(), [&](const std::string& lane) {
    return std::find(allowed.begin(), allowed.end(), lane) != allowed.end();
  });
}

TEST(UcxTransport, EnvironmentCannotWidenTheReach) {
  for (const char* tls : {"tcp", "all", "^posix,sysv", "posix,sysv,tcp", "no_such_transport"}) {
    SCOPED_TRACE(tls);
    const Environment environment("UCX_TLS", tls);
    EXPECT_TRUE(only(lanes_used(of(UcxReach::tcp)), {"tcp"}));
    EXPECT_TRUE(only(lanes_used(of(UcxReach::network)), {"tcp"}));
  }
}

TEST(UcxTransport, IsSetOverTheEnvironmentAsItsReachNeeds) {
  const Environment keepalive("UCX_KEEPALIVE_INTERVAL", "77s");
  ASSERT_TRUE(ucx::open_api());
  modify_config = std::exchange(ucx::detail::opened_api.ucp_config_modify, note_setting);
  using Settings = std::map<std::string, std::string>;
  const auto given = [](const UcxOptions& options) {
    settings_given().clear();
    EXPECT_TRUE(make_ucx(options, Logger()).is_ok());
    Settings all = settings_given();
    // The transports that were found on this machine; ucx_reach_test.cc tests this value.
    EXPECT_EQ(all.erase("TLS"), 1U);
    return all;
  };
  const std::string prefix = is_older_than(1, 17) ? "" : "TCP_";
  Settings tcp = {{"SELF_DEVICES", "all"},
                  {"KEEPALIVE_INTERVAL", "300ms"},
                  {prefix + "MAX_IOV", "0"},
                  {prefix + "TX_SEG_SIZE", "64k"}};
  EXPECT_EQ(given(of(UcxReach::tcp)), tcp);
  UcxOptions named = of(UcxReach::tcp);
  named.devices = {"lo"};
  named.keepalive = std::chrono::milliseconds(450);
  tcp["NET_DEVICES"] = "lo";
  tcp["KEEPALIVE_INTERVAL"] = "450ms";
  EXPECT_EQ(given(named), tcp);
  ucx::detail::opened_api.ucp_config_modify = modify_config;
}

// UCX accepts any name of an option, and warns about names that no transport uses.
TEST(UcxTransport, IsSetByNamesThatUcxKnows) {
  for (const UcxReach reach : {UcxReach::tcp, UcxReach::network}) {
    ::testing::internal::CaptureStdout();
    EXPECT_TRUE(make_ucx(of(reach), Logger()).is_ok());
    std::fflush(stdout);
    EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
  }
}

TEST(UcxTransport, VariableThatUcxCannotReadIsAnErrorThatSaysSo) {
  const Environment environment("UCX_RNDV_THRESH", "plenty");
  EXPECT_THAT(make_ucx(of(UcxReach::tcp), Logger()), fails_as(Code::invalid_argument, "UCX_"));
}

TEST(UcxTransport, KeepsToTheDevicesNamed) {
  auto options = of(UcxReach::tcp);
  options.devices = {"lo"};
  auto a = value_of(make_ucx(options, Logger()));
  auto self = a->connect(a->address());
  ASSERT_TRUE(self.is_ok()) << self.status().to_string();
  for (const PhysicalPath& lane : a->paths(*self)) {
    EXPECT_TRUE(lane.device == "lo" || lane.transport == "self") << lane.device;
  }
  a->close(*self);
}

TEST(UcxTransport, UnknownDeviceIsRefusedByName) {
  auto options = of(UcxReach::tcp);
  options.devices = {"no_such_device0"};
  const auto status = make_ucx(options, Logger()).status();
  EXPECT_THAT(status, fails_as(Code::invalid_argument, "no_such_device0"));
  EXPECT_THAT(status, fails_with("tcp/lo"));
}

TEST(UcxTransport, KeepaliveMustBePositive) {
  auto options = of(UcxReach::tcp);
  options.keepalive = std::chrono::milliseconds(0);
  EXPECT_EQ(make_ucx(options, Logger()).code(), Code::invalid_argument);
}

TEST(UcxTransport, RefusesAPeerOfAnotherReach) {
  auto network = value_of(make_ucx(of(UcxReach::network), Logger()));
  auto tcp = value_of(make_ucx(of(UcxReach::tcp), Logger()));
  EXPECT_EQ(network->connect(tcp->address()).code(), Code::invalid_argument);
}

// A peer stops in the middle of a message, and the endpoint of another peer ends. The transport
// cannot know whether the message comes from the peer that has ended.
TEST(UcxTransport, WhoseCancelledReceiveOutlivesAnEndpointEndsItsWorkerAndSaysSoOnce) {
  const std::string path = ::testing::TempDir() + "xylem-ucx-worker-" + std::to_string(::getpid());
  const auto log = value_of(Logger::open({.level = LogLevel::warn, .file = path}, {"host", 0, ""}));
  const auto source = pattern(64 << 20, 1);
  std::vector<std::byte> target(source.size());
  std::uint64_t word = 0, got = 0;
  Tracked sent, arriving, waiting, late_send, late_recv;
  std::deque<Tracked> greetings(4);
  auto a = make_ucx(of(UcxReach::tcp), Logger());
  auto b = make_ucx(of(UcxReach::tcp), log);
  auto c = make_ucx(of(UcxReach::tcp), Logger());
  ASSERT_TRUE(a.is_ok() && b.is_ok() && c.is_ok());
  const auto to_b = (*a)->connect((*b)->address());
  const auto to_a = (*b)->connect((*a)->address());
  const auto to_c = (*b)->connect((*c)->address());
  ASSERT_TRUE(to_b.is_ok() && to_a.is_ok() && to_c.is_ok());
  recv(**a, 1, &got, sizeof got, greetings[0]);
  recv(**c, 1, &got, sizeof got, greetings[1]);
  send(**b, *to_a, 1, &word, sizeof word, greetings[2]);
  send(**b, *to_c, 1, &word, sizeof word, greetings[3]);
  ASSERT_TRUE(drive({a->get(), b->get(), c->get()}, [&] {
    return std::ranges::all_of(greetings, [](const Tracked& each) { return each.ended(); });
  }));

  recv(**b, 2, target.data(), target.size(), arriving);
  recv(**b, 3, &got, sizeof got, waiting);
  send(**a, *to_b, 2, source.data(), source.size(), sent);
  const auto has_begun = [&] { return target[0] == source[0] && target[1] == source[1]; };
  ASSERT_TRUE(drive({a->get(), b->get()}, has_begun));
  ASSERT_FALSE(arriving.ended());
  (*b)->cancel(arriving);
  (*b)->close(*to_c);
  settle({b->get()});
  EXPECT_FALSE(arriving.ended() || waiting.ended());
  ASSERT_TRUE(drive({b->get()}, [&] { return arriving.ended() && waiting.ended(); }));
  EXPECT_EQ(arriving.code, Code::cancelled);
  EXPECT_EQ(waiting.code, Code::link_lost);

  send(**b, *to_a, 4, &word, sizeof word, late_send);
  recv(**b, 4, &got, sizeof got, late_recv);
  ASSERT_TRUE(drive({b->get()}, [&] { return late_send.ended() && late_recv.ended(); }));
  EXPECT_EQ(late_send.code, Code::link_lost);
  EXPECT_EQ(late_recv.code, Code::link_lost);
  settle({b->get()});
  std::ifstream file(path);
  const std::string said(std::istreambuf_iterator<char>(file), {});
  EXPECT_THAT(said, HasSubstr("ends its worker"));
  EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
  std::filesystem::remove(path);
}

TEST(UcxTransport, EndsWithWorkLeftWithoutTouchingIt) {
  auto a = make_ucx(of(UcxReach::tcp), Logger());
  auto b = make_ucx(of(UcxReach::tcp), Logger());
  ASSERT_TRUE(a.is_ok() && b.is_ok());
  auto to_b = value_of((*a)->connect((*b)->address()));
  auto source = std::make_unique<std::vector<std::byte>>(4 << 20);
  auto target = std::make_unique<std::uint64_t>(7);
  auto left = std::make_unique<std::vector<Tracked>>(2);
  send(**a, to_b, 1, source->data(), source->size(), (*left)[0]);
  recv(**a, 2, target.get(), sizeof *target, (*left)[1]);
  settle({a->get(), b->get()});
  EXPECT_FALSE((*left)[0].ended() || (*left)[1].ended());
  // A sanitizer reports any later access to this memory.
  left.reset();
  source.reset();
  target.reset();
  const auto start = Clock::now();
  a->reset();
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));
  settle({b->get()});
}

TEST(UcxTransport, LibraryThatIsMissingOrIsNotUcxIsAnErrorThatNamesIt) {
  EXPECT_THAT(ucx::load_api("libno_such_ucp.so.0"),
              fails_as(Code::unsupported, "libno_such_ucp.so.0"));
  EXPECT_THAT(ucx::load_api("libm.so.6"),
              fails_as(Code::unsupported, "libm.so.6 has no function ucp_"));
  EXPECT_THAT(ucx::load_api(XYLEM_OLD_UCX),
              fails_as(Code::unsupported, "UCX 1.12.1 is too old: install UCX 1.13 or newer"));
}

using Handlers = std::array<void (*)(int), NSIG>;

Handlers handlers_now() {
  Handlers handlers{};
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action {};
    ::sigaction(signal, nullptr, &action);
    handlers[signal] = action.sa_handler;
  }
  return handlers;
}

// Runs in a separate process, which has not opened UCX before.
TEST(UcxTransportDeathTest, OpeningTheLibraryLeavesTheHandlersOfTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        ::setenv("UCX_ERROR_SIGNALS", "SIGSEGV,SIGABRT", 1);
        ::setenv("UCX_HANDLE_ERRORS", "bt", 1);
        ::signal(SIGHUP, SIG_IGN);
        ::signal(SIGSEGV, SIG_IGN);
        const Handlers before = handlers_now();
        std::_Exit(ucx::open_api().is_ok() && handlers_now() == before ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(UcxTransport, NamesItsLibraryAndItsDevices) {
  const auto devices = value_of(ucx_devices());
  EXPECT_THAT(ucx_version(), ::testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+.*"));
  const auto has = [&](std::string_view transport, std::string_view device, UcxDevice::Kind kind) {
    return std::any_of(devices.begin(), devices.end(), [&](const UcxDevice& found) {
      return found.transport == transport && found.device == device && found.kind == kind;
    });
  };
  EXPECT_TRUE(has("tcp", "lo", UcxDevice::Kind::network));
  EXPECT_TRUE(has("posix", "memory", UcxDevice::Kind::shared_memory) ||
              has("sysv", "memory", UcxDevice::Kind::shared_memory));
  EXPECT_TRUE(has("self", "memory", UcxDevice::Kind::self) ||
              has("self", "memory0", UcxDevice::Kind::self));
}

}  // namespace
}  // namespace xylem::transport::testing
