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

/// A TCP socket of a host, as the kernel shows it to every process on that host.
struct SocketEntry {
  std::uint16_t port = 0;
  bool listens = false;
};

/// The TCP sockets in the network namespace of a process; `self` is the calling process.
std::vector<SocketEntry> sockets_beside(const std::string& process);
/// The names of the Unix sockets in that namespace that have no file. Every process there sees
/// them.
std::vector<std::string> names_beside(const std::string& process);

/// Two network namespaces, which are removed at the end with all they contain. Needs root and the
/// program `ip`.
class Hosts {
 public:
  static constexpr std::size_t kCount = 2;

  Hosts();
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;
  ~Hosts();

  /// True if this machine could make the namespaces.
  bool ok() const { return ok_; }
  /// Waits until the system reports both ends of the cable as up, which UCX asks before it uses a
  /// device. The report comes up to a second after the cable can be used.
  bool wait_for_wire(Deadline deadline) const;
  static std::string address(std::size_t host) { return host == 0 ? "10.98.0.1" : "10.98.0.2"; }
  /// Runs a program on a host. The pid of the returned command is the program's.
  std::unique_ptr<Command> run(std::size_t host,
                               const std::vector<std::string>& program,
                               const Command::Variables& variables) const;
  const std::string& name(std::size_t host) const { return names_[host]; }
  /// Runs `body` on a host, in a thread of this process and therefore as its user.
  void within(std::size_t host, const std::function<void()>& body) const;

  /// Runs the program `ip`; true if it succeeds.
  static bool ip(std::vector<std::string> arguments);
  /// Cuts the cable, which neither host is told.
  bool cut() const { return ip({"-n", names_[0], "link", "set", "wire0", "down"}); }

 private:
  std::array<std::string, kCount> names_;
  bool ok_ = false;
};

/// A process of another user on a host: a fork of this process without any privileges.
class Stranger {
 public:
  /// The stranger's pipes to its test. `stop` becomes readable when the stranger should end.
  struct Line {
    int stop;
    int out;
    bool is_over() const;
    /// Sends text to the test in one write.
    void say(const std::string& text) const;
  };

  Stranger(const Hosts& hosts, std::size_t host, const std::function<void(const Line&)>& body);
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;
  ~Stranger();

  /// Waits until the stranger has said `text`.
  bool wait_for(std::string_view text, Deadline deadline);
  /// Asks the stranger to end, waits for it, and returns all that it has said.
  std::string stop(Deadline deadline);

 private:
  bool read_some(Deadline deadline);

  pid_t pid_ = -1;
  UniqueFd stop_, out_;
  std::string said_;
};

/// Starts to connect to a port of a host. Returns an invalid descriptor if that is refused at once.
UniqueFd call(const std::string& address, std::uint16_t port);
/// Waits up to a second, and returns true if the connection was accepted. A socket that the kernel
/// has connected to itself, which happens now and then, does not count.
bool is_answered(int fd);

}  // namespace xylem::test
