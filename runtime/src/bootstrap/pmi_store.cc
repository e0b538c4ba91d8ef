// SPDX-License-Identifier: Apache-2.0
//
// PMI-1's text protocol: each question and each answer is one line of name=value pairs, separated
// by blanks.
#include "bootstrap/pmi_store.h"

#include "bootstrap/socket.h"
#include "bootstrap/store_rules.h"
#include "bootstrap/wire_format.h"

#include <fmt/format.h>
#include <sodium.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>

namespace xylem::runtime {
namespace {

// The alphabet of this variant has neither blank nor '=', which PMI reserves.
constexpr int kBase64 = sodium_base64_VARIANT_URLSAFE_NO_PADDING;
/// A longer line is an error, since PMI has no such lines.
constexpr std::size_t kLongestLine = std::size_t{256} * 1024;

/// The value of `name` in "cmd=… name=value …"; empty if it is not there.
std::string_view field(std::string_view line, std::string_view name) {
  while (!line.empty()) {
    const auto blank = line.find(' ');
    const auto pair = line.substr(0, blank);
    if (pair.size() > name.size() && pair.starts_with(name) && pair[name.size()] == '=') {
      return pair.substr(name.size() + 1);
    }
    if (blank == std::string_view::npos) break;
    line.remove_prefix(blank + 1);
  }
  return {};
}

std::size_t number(std::string_view text) {
  std::size_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

std::string encode(ByteSpan bytes) {
  if (bytes.empty()) return {};  // libsodium accepts no null pointer.
  std::string text(sodium_base64_encoded_len(bytes.size(), kBase64), '\0');
  sodium_bin2base64(text.data(), text.size(), reinterpret_cast<const unsigned char*>(bytes.data()),
                    bytes.size(), kBase64);
  text.pop_back();
  return text;
}

Result<ByteVector> decode(std::string_view text) {
  if (text.empty()) return ByteVector();
  ByteVector bytes(text.size());
  std::size_t size = 0;
  const int failed = sodium_base642bin(reinterpret_cast<unsigned char*>(bytes.data()), bytes.size(),
                                       text.data(), text.size(), nullptr, &size, nullptr, kBase64);
  if (failed != 0) return failure(Code::internal, "PMI returned a value that was not set by Xylem");
  bytes.resize(size);
  return bytes;
}

/// Sends "finalize" to the launcher when the process exits, and not earlier: all starts of Xylem in
/// this process use the same connection, which ends with "finalize".
class Farewell {
 public:
  explicit Farewell(int fd) : fd_(fd), process_(::getpid()) { ::fstat(fd, &socket_); }
  Farewell(const Farewell&) = delete;
  Farewell& operator=(const Farewell&) = delete;
  ~Farewell() {
    // Sends nothing in a forked child. Sends nothing either if the descriptor is not the same
    // socket: then an MPI library has sent "finalize" and closed the connection.
    struct stat now {};
    const bool is_ours = ::getpid() == process_ && ::fstat(fd_, &now) == 0 &&
                         now.st_dev == socket_.st_dev && now.st_ino == socket_.st_ino;
    if (!is_ours) return;
    const Deadline deadline = Deadline::after(std::chrono::seconds(1));
    std::array<std::byte, 64> answer;
    if (!send_all(fd_, bytes_of("cmd=finalize\n"), deadline)) return;
    if (!wait_for(fd_, POLLIN, deadline)) return;
    static_cast<void>(::recv(fd_, answer.data(), answer.size(), MSG_DONTWAIT));
  }

 private:
  int fd_;
  ::pid_t process_;
  struct stat socket_ {};
};

}  // namespace

void finalize_pmi_at_exit(int fd) { static const Farewell kUntilExit(fd); }

Result<std::shared_ptr<Store>> PmiStore::open(int fd, std::uint32_t rank, Deadline deadline) {
  if (::fcntl(fd, F_GETFD) < 0) {
    return failure(Code::invalid_argument,
                   fmt::format("PMI_FD is {}, which is not open in this process: start the program "
                               "under the launcher itself, or set XYLEM_RENDEZVOUS",
                               fd));
  }
  const std::shared_ptr<PmiStore> store(new PmiStore(fd, deadline));
  XYLEM_TRY(store->greet(rank));
  return std::shared_ptr<Store>(store);
}

Status PmiStore::greet(std::uint32_t rank) {
  XYLEM_TRY(const std::string init,
            ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init", deadline_));
  if (field(init, "rc") != "0") {
    return failure(
        Code::unsupported,
        fmt::format("the launcher does not speak PMI 1.1 (\"{}\"): set XYLEM_RENDEZVOUS", init));
  }
  XYLEM_TRY(const std::string limits, ask("cmd=get_maxes", "maxes", deadline_));
  longest_key_ = number(field(limits, "keylen_max"));
  longest_value_ = number(field(limits, "vallen_max"));
  constexpr std::size_t kLeastValue = 32;
  if (longest_key_ < kLeastValue || longest_value_ < kLeastValue) {
    return failure(Code::unsupported,
                   fmt::format("the launcher's PMI has no room for values (\"{}\")", limits));
  }
  XYLEM_TRY(const std::string kvs, ask("cmd=get_my_kvsname", "my_kvsname", deadline_));
  kvs_ = field(kvs, "kvsname");
  // Counts the earlier starts of this process. All processes of the job start and stop Xylem
  // together, so each finds the same number.
  for (;; ++start_) {
    const std::string mark = fmt::format("xylem.{}.{}", start_, rank);
    const auto found = fetch(mark, deadline_);
    if (found) continue;
    if (found.code() != Code::timed_out || is_broken_) return found.status();
    return put(mark, "1");
  }
}

Status PmiStore::set(std::string_view key, std::span<const std::byte> value) {
  XYLEM_TRY(check_entry(key, value.size()));
  if (!set_keys_.emplace(key).second) return set_twice(key);
  is_synchronized_ = false;
  // Four characters hold three bytes, and the first piece also holds the number of pieces.
  constexpr std::size_t kCountField = 8;
  const std::size_t room = (longest_value_ - kCountField - 1) / 4 * 3;
  const std::size_t pieces = value.empty() ? 1 : (value.size() + room - 1) / room;
  for (std::size_t i = 0; i < pieces; ++i) {
    const auto piece = value.subspan(i * room, std::min(room, value.size() - i * room));
    const std::string count = i == 0 ? fmt::format("{}.", pieces) : "";
    XYLEM_TRY(put(piece_key(key, i), count + encode(piece)));
  }
  return {};
}

Result<std::vector<std::byte>> PmiStore::get(std::string_view key, Deadline deadline) {
  XYLEM_TRY(check_entry(key, 0));
  if (!is_synchronized_) XYLEM_TRY(barrier(deadline));
  XYLEM_TRY(const std::string first, fetch(piece_key(key, 0), deadline));
  const auto dot = first.find('.');
  if (dot == std::string::npos)
    return failure(Code::internal, "PMI returned a value without its size");
  const std::size_t pieces = number(std::string_view(first).substr(0, dot));
  XYLEM_TRY(ByteVector value, decode(std::string_view(first).substr(dot + 1)));
  for (std::size_t i = 1; i < pieces; ++i) {
    XYLEM_TRY(const std::string text, fetch(piece_key(key, i), deadline));
    XYLEM_TRY(const ByteVector piece, decode(text));
    value.insert(value.end(), piece.begin(), piece.end());
  }
  return value;
}

std::string PmiStore::piece_key(std::string_view key, std::size_t piece) const {
  return fmt::format("xylem.{}.{}.{}", start_, key, piece);
}

Status PmiStore::barrier(Deadline deadline) {
  Status out = ask("cmd=barrier_in", "barrier_out", deadline).status();
  if (out.code() == Code::timed_out) {
    return failure(Code::timed_out,
                   "not all ranks came to the launcher's barrier in time (PMI does not say which)");
  }
  if (!out) return out;
  is_synchronized_ = true;
  return {};
}

Status PmiStore::put(const std::string& key, std::string_view text) {
  if (key.size() >= longest_key_) {
    return failure(Code::invalid_argument,
                   fmt::format("store key \"{}\" is longer than the launcher's limit of {}", key,
                               longest_key_));
  }
  XYLEM_TRY(const std::string result,
            ask(fmt::format("cmd=put kvsname={} key={} value={}", kvs_, key, text), "put_result",
                deadline_));
  if (field(result, "rc") == "0") return {};
  return failure(Code::exhausted, fmt::format("the launcher refused a value (\"{}\")", result));
}

Result<std::string> PmiStore::fetch(const std::string& key, Deadline deadline) {
  XYLEM_TRY(const std::string result,
            ask(fmt::format("cmd=get kvsname={} key={}", kvs_, key), "get_result", deadline));
  if (field(result, "rc") == "0") return std::string(field(result, "value"));
  return failure(Code::timed_out,
                 fmt::format("key \"{}\" was not set before the launcher's barrier", key));
}

Result<std::string> PmiStore::ask(const std::string& command,
                                  std::string_view answer,
                                  Deadline deadline) {
  if (is_broken_)
    return failure(Code::timed_out, "the launcher did not answer an earlier question");
  is_broken_ = true;
  const std::string line = command + "\n";
  for (std::string_view left = line; !left.empty();) {
    XYLEM_TRY(wait_for(fd_, POLLOUT, deadline));
    // The descriptor is always a socket. If the launcher has closed the connection, sending must
    // not raise SIGPIPE.
    const ssize_t written = ::send(fd_, left.data(), left.size(), MSG_NOSIGNAL);
    if (written < 0 && errno != EINTR && errno != EAGAIN) {
      return failure(Code::link_lost, "cannot write to the launcher: " + error_text(errno));
    }
    if (written > 0) left.remove_prefix(static_cast<std::size_t>(written));
  }
  XYLEM_TRY(std::string reply, read_line(deadline));
  if (field(reply, "cmd") != answer) {
    return failure(Code::unsupported,
                   fmt::format(R"(the launcher answered "{}" to "{}")", reply, command));
  }
  is_broken_ = false;
  return reply;
}

Result<std::string> PmiStore::read_line(Deadline deadline) {
  for (;;) {
    const auto end = unread_.find('\n');
    if (end != std::string::npos) {
      std::string line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      return line;
    }
    if (unread_.size() > kLongestLine)
      return failure(Code::internal, "the launcher's answer has no end");
    XYLEM_TRY(wait_for(fd_, POLLIN, deadline));
    std::array<char, 4096> piece;
    const ssize_t got = ::read(fd_, piece.data(), piece.size());
    if (got > 0) {
      unread_.append(piece.data(), static_cast<std::size_t>(got));
    } else if (got == 0) {
      return failure(Code::link_lost, "the launcher closed its connection to this process");
    } else if (errno != EINTR && errno != EAGAIN) {
      return failure(Code::link_lost, "cannot read from the launcher: " + error_text(errno));
    }
  }
}

}  // namespace xylem::runtime
