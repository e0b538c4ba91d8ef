// SPDX-License-Identifier: Apache-2.0
#include "process/hosts.h"

#include "xylem/base/check.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

namespace xylem::test {
namespace {

/// The user id of `nobody`.
constexpr uid_t kOtherUser = 65534;
/// More file descriptors than a stranger has open at a time.
constexpr rlim_t kDescriptors = 8192;

/// Opens the network namespace with this name.
UniqueFd space_of(const std::string& name) {
  UniqueFd space(::open(("/run/netns/" + name).c_str(), O_RDONLY | O_CLOEXEC));
  XYLEM_CHECK(static_cast<bool>(space), errno);
  return space;
}

/// What the stranger does after the fork. It exits at the end, and does not continue the test.
[[noreturn]] void become_stranger(int host,
                                  const Stranger::Line& line,
                                  const std::function<void(const Stranger::Line&)>& body) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::signal(SIGPIPE, SIG_IGN);
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(limit.rlim_max, kDescriptors));
  ::setrlimit(RLIMIT_NOFILE, &limit);
  const bool is_there = ::setns(host, CLONE_NEWNET) == 0 && ::setgroups(0, nullptr) == 0 &&
                        ::setresgid(kOtherUser, kOtherUser, kOtherUser) == 0 &&
                        ::setresuid(kOtherUser, kOtherUser, kOtherUser) == 0;
  if (!is_there) ::_exit(1);
  body(line);
  ::_exit(0);
}

}  // namespace

std::vector<SocketEntry> sockets_beside(const std::string& process) {
  std::vector<SocketEntry> all;
  for (const char* const table : {"tcp", "tcp6"}) {
    std::ifstream file("/proc/" + process + "/net/" + table);
    std::string text;
    std::getline(file, text);  // The heading.
    while (std::getline(file, text)) {
      std::istringstream columns(text);
      std::string number;
      std::string local;
      std::string remote;
      std::string state;
      columns >> number >> local >> remote >> state;
      const auto port = std::stoul(local.substr(local.rfind(':') + 1), nullptr, 16);
      all.push_back({static_cast<std::uint16_t>(port), state == "0A"});
    }
  }
  return all;
}

std::vector<std::string> names_beside(const std::string& process) {
  std::vector<std::string> all;
  std::ifstream file("/proc/" + process + "/net/unix");
  for (std::string line; std::getline(file, line);) {
    const auto at = line.find(" @");
    if (at != std::string::npos) all.push_back(line.substr(at + 2));
  }
  return all;
}

// --- Hosts ----------------------------------------------------------------------

Hosts::Hosts() {
  const std::string prefix = "xyh" + std::to_string(::getpid());
  names_ = {prefix + "a", prefix + "b"};
  ok_ = ip({"netns", "add", names_[0]}) && ip({"netns", "add", names_[1]}) &&
        ip({"-n", names_[0], "link", "add", "wire0", "type", "veth", "peer", "name", "wire0",
            "netns", names_[1]});
  for (std::size_t host = 0; ok_ && host < kCount; ++host) {
    ok_ = ip({"-n", names_[host], "addr", "add", address(host) + "/24", "dev", "wire0"}) &&
          ip({"-n", names_[host], "link", "set", "wire0", "up"}) &&
          ip({"-n", names_[host], "link", "set", "lo", "up"});
  }
}

Hosts::~Hosts() {
  for (const std::string& name : names_) ip({"netns", "del", name});
}

bool Hosts::ip(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "ip");
  return run_command(arguments).exit_status == 0;
}

bool Hosts::add_wire(bool is_broken) const {
  const auto add = [](const std::string& at, const char* peer, const std::string& peer_at) {
    return ip(
        {"-n", at, "link", "add", "wire1", "type", "veth", "peer", "name", peer, "netns", peer_at});
  };
  const bool is_added = is_broken
                            ? add(names_[0], "end1", names_[0]) && add(names_[1], "end1", names_[1])
                            : add(names_[0], "wire1", names_[1]);
  for (std::size_t host = 0; is_added && host < kCount; ++host) {
    const std::string place = "10.99.0." + std::to_string(host + 1) + "/24";
    if (is_broken && !ip({"-n", names_[host], "link", "set", "end1", "up"})) return false;
    if (!ip({"-n", names_[host], "addr", "add", place, "dev", "wire1"}) ||
        !ip({"-n", names_[host], "link", "set", "wire1", "up"})) {
      return false;
    }
  }
  return is_added;
}

std::uint64_t Hosts::bytes_sent(std::size_t host, const std::string& interface) const {
  std::uint64_t bytes = 0;
  within(host, [&] {
    std::ifstream file("/proc/thread-self/net/dev");
    for (std::string line; std::getline(file, line);) {
      std::istringstream columns(line);
      std::string name;
      columns >> name;
      // After the name come eight columns of what was received.
      for (int column = 0; name == interface + ":" && column < 9; ++column) columns >> bytes;
    }
  });
  return bytes;
}

std::unique_ptr<Command> Hosts::run(std::size_t host,
                                    const std::vector<std::string>& program,
                                    const Command::Variables& variables) const {
  std::vector<std::string> arguments = {"ip", "netns", "exec", names_[host]};
  arguments.insert(arguments.end(), program.begin(), program.end());
  return std::make_unique<Command>(arguments, variables);
}

bool Hosts::wait_for_wire(Deadline deadline) const {
  return std::ranges::all_of(names_, [&](const std::string& name) {
    const auto runs = [&] {
      const Finished said = run_command({"ip", "-n", name, "link", "show", "dev", "wire0"});
      return said.out.find("state UP") != std::string::npos;
    };
    while (!runs()) {
      if (deadline.passed()) return false;
    }
    return true;
  });
}

void Hosts::within(std::size_t host, const std::function<void()>& body) const {
  const UniqueFd there = space_of(name(host));
  std::thread([&] {
    XYLEM_CHECK(::setns(there.get(), CLONE_NEWNET) == 0, errno);
    body();
  }).join();
}

// --- Strangers --------------------------------------------------------------------

bool Stranger::Line::is_over() const {
  pollfd entry{stop, POLLIN, 0};
  return ::poll(&entry, 1, 0) > 0;
}

void Stranger::Line::say(const std::string& text) const {
  XYLEM_CHECK(::write(out, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
}

Stranger::Stranger(const Hosts& hosts,
                   std::size_t host,
                   const std::function<void(const Line&)>& body) {
  const UniqueFd there = space_of(hosts.name(host));
  std::array<int, 2> stop{};
  std::array<int, 2> out{};
  XYLEM_CHECK(::pipe2(stop.data(), O_CLOEXEC) == 0 && ::pipe2(out.data(), O_CLOEXEC) == 0, errno);
  pid_ = ::fork();
  XYLEM_CHECK(pid_ >= 0, errno);
  if (pid_ == 0) {
    ::close(stop[1]);
    ::close(out[0]);
    become_stranger(there.get(), {stop[0], out[1]}, body);
  }
  ::close(stop[0]);
  ::close(out[1]);
  stop_.reset(stop[1]);
  out_.reset(out[0]);
}

Stranger::~Stranger() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

bool Stranger::read_some(Deadline deadline) {
  pollfd entry{out_.get(), POLLIN, 0};
  if (::poll(&entry, 1, deadline.left_ms()) <= 0) return false;
  std::array<char, 4096> piece;
  const ssize_t got = ::read(out_.get(), piece.data(), piece.size());
  if (got <= 0) return false;
  said_.append(piece.data(), static_cast<std::size_t>(got));
  return true;
}

bool Stranger::wait_for(std::string_view text, Deadline deadline) {
  while (said_.find(text) == std::string::npos) {
    if (!read_some(deadline)) return false;
  }
  return true;
}

std::string Stranger::stop(Deadline deadline) {
  stop_.reset();
  while (read_some(deadline)) {
  }
  return said_;
}

UniqueFd call(const std::string& address, std::uint16_t port) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  sockaddr_in there{};
  there.sin_family = AF_INET;
  there.sin_port = htons(port);
  ::inet_pton(AF_INET, address.c_str(), &there.sin_addr);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&there), sizeof there) != 0 &&
      errno != EINPROGRESS)
    fd.reset();
  return fd;
}

bool is_answered(int fd) {
  constexpr int kLongest = 1000;  // ms
  pollfd entry{fd, POLLOUT, 0};
  if (::poll(&entry, 1, kLongest) <= 0) return false;
  sockaddr_in here{};
  sockaddr_in there{};
  socklen_t here_size = sizeof here;
  socklen_t there_size = sizeof there;
  return ::getsockname(fd, reinterpret_cast<sockaddr*>(&here), &here_size) == 0 &&
         ::getpeername(fd, reinterpret_cast<sockaddr*>(&there), &there_size) == 0 &&
         std::memcmp(&here, &there, sizeof here) != 0;
}

}  // namespace xylem::test
