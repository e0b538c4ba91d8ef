// SPDX-License-Identifier: Apache-2.0
//
// Two hosts connected by a virtual cable, made from network namespaces of this machine. Also
// hostile processes of another user, which run on these hosts.
#pragma once

#include "process/command.h"
#include "xylem/base/clock.h"
#include "xylem/base/unique_fd.h"

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace xylem::test {

/// A TCP socket of a host. Every process on the host can list it.
struct SocketEntry {
  std::uint16_t port = 0;
  bool listens = false;
};

/// The TCP sockets in the network namespace of a process. `self` means the calling process.
std::vector<SocketEntry> sockets_beside(const std::string& process);
/// The names of the Unix sockets without a file in the network namespace of a process. Every
/// process in the namespace can list them.
std::vector<std::string> names_beside(const std::string& process);

/// Two network namespaces. The destructor removes them with their contents. Needs root and the
/// program `ip`.
class Hosts {
 public:
  static constexpr std::size_t kCount = 2;

  Hosts();
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;
  ~Hosts();

  /// True if the namespaces could be created.
  bool ok() const { return ok_; }
  /// Gives each host another interface, "wire1", with an address in 10.99.0.0/24. If the wire is
  /// broken, the hosts cannot reach each other over these interfaces, though they are up. Returns
  /// true if it succeeds.
  bool add_wire(bool is_broken) const;
  /// The bytes that a host has sent over an interface.
  std::uint64_t bytes_sent(std::size_t host, const std::string& interface) const;
  /// Waits until the system reports that both ends of the cable are up. UCX uses a device only
  /// after this report. It comes up to a second after the cable can be used.
  bool wait_for_wire(Deadline deadline) const;
  static std::string address(std::size_t host) { return host == 0 ? "10.98.0.1" : "10.98.0.2"; }
  /// Runs a program on a host. pid() of the returned command is the pid of the program.
  std::unique_ptr<Command> run(std::size_t host,
                               const std::vector<std::string>& program,
                               const Command::Variables& variables) const;
  const std::string& name(std::size_t host) const { return names_[host]; }
  /// Runs `body` on a host, in a thread of this process, and so with the user id of this process.
  void within(std::size_t host, const std::function<void()>& body) const;

  /// Runs the program `ip`. Returns true if it succeeds.
  static bool ip(std::vector<std::string> arguments);
  /// Cuts the cable. The hosts get no notice of this.
  bool cut() const { return ip({"-n", names_[0], "link", "set", "wire0", "down"}); }

 private:
  std::array<std::string, kCount> names_;
  bool ok_ = false;
};

/// A process of another user on a host: a fork of this process without privileges.
class Stranger {
 public:
  /// The stranger's pipes to the test. `stop` becomes readable when the stranger should end.
  struct Line {
    int stop;
    int out;
    bool is_over() const;
    /// Writes text to the test, in one system call.
    void say(const std::string& text) const;
  };

  Stranger(const Hosts& hosts, std::size_t host, const std::function<void(const Line&)>& body);
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;
  ~Stranger();

  /// Waits until the stranger has written `text`.
  bool wait_for(std::string_view text, Deadline deadline);
  /// Signals the stranger to end, waits for it, and returns its whole output.
  std::string stop(Deadline deadline);

 private:
  bool read_some(Deadline deadline);

  pid_t pid_ = -1;
  UniqueFd stop_, out_;
  std::string said_;
};

/// Starts to connect to a port of a host. Returns an invalid descriptor if the kernel refuses at
/// once.
UniqueFd call(const std::string& address, std::uint16_t port);
/// Waits up to a second. Returns true if the connection was accepted. Returns false for a socket
/// that the kernel has connected to itself, which happens occasionally.
bool is_answered(int fd);

}  // namespace xylem::test
