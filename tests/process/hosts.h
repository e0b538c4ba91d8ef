// SPDX-License-Identifier: Apache-2.0
//
// Two hosts with a wire between them, as network namespaces of this machine, and processes of
// another user on them that mean ill.
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

/// A TCP socket of a host, as its kernel shows it to everybody there.
struct SocketEntry {
  std::uint16_t port = 0;
  bool listens = false;
};

/// The sockets of the network namespace of a process; "self" for this one.
std::vector<SocketEntry> sockets_beside(const std::string& process);
/// The names of the Unix sockets there that have no file, as all of its host can see them.
std::vector<std::string> names_beside(const std::string& process);

/// Gone with everything in them at the end. Needs root, and the program `ip`.
class Hosts {
 public:
  static constexpr std::size_t kCount = 2;

  Hosts();
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;
  ~Hosts();

  /// Whether this machine could make them.
  bool ok() const { return ok_; }
  /// Waits until both ends of the wire are known to run, without which UCX does not use it: the
  /// system says so up to a second after they could be used.
  bool wait_for_wire(Deadline deadline) const;
  static std::string address(std::size_t host) { return host == 0 ? "10.98.0.1" : "10.98.0.2"; }
  /// Runs a program on a host. Its process is that of the command.
  std::unique_ptr<Command> run(std::size_t host,
                               const std::vector<std::string>& program,
                               const Command::Variables& variables) const;
  const std::string& name(std::size_t host) const { return names_[host]; }
  /// Runs `body` in a thread of this process, and so of its user, that is on a host.
  void within(std::size_t host, const std::function<void()>& body) const;

 private:
  static bool ip(std::vector<std::string> arguments);

  std::array<std::string, kCount> names_;
  bool ok_ = false;
};

/// A process of another user on a host: a copy of this one, with rights to nothing.
class Stranger {
 public:
  /// How a stranger talks with its test. `stop` is readable once it is to end.
  struct Line {
    int stop;
    int out;
    bool is_over() const;
    /// Tells the test something, in one write.
    void say(const std::string& text) const;
  };

  Stranger(const Hosts& hosts, std::size_t host, const std::function<void(const Line&)>& body);
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;
  ~Stranger();

  /// Waits until it has said `text`.
  bool wait_for(std::string_view text, Deadline deadline);
  /// Tells it to end, and waits for that; all that it said.
  std::string stop(Deadline deadline);

 private:
  bool read_some(Deadline deadline);

  pid_t pid_ = -1;
  UniqueFd stop_, out_;
  std::string said_;
};

/// Starts to connect to a port of a host; an invalid descriptor if that is refused at once.
UniqueFd call(const std::string& address, std::uint16_t port);
/// Waits for a call, as long as it may take between two hosts of one machine. A connection of a
/// socket to itself, which the kernel makes now and then, is none.
bool is_answered(int fd);

}  // namespace xylem::test
