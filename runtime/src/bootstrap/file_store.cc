// SPDX-License-Identifier: Apache-2.0
//
// The store in a shared directory.
#include "bootstrap/file_store.h"

#include "bootstrap/secret.h"
#include "bootstrap/socket.h"
#include "bootstrap/store_rules.h"
#include "bootstrap/wire.h"
#include "xylem/base/hash.h"
#include "xylem/base/unique_fd.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <sstream>
#include <thread>

namespace xylem::runtime {
namespace {

namespace fs = std::filesystem;

std::string fresh_number() {
  const Nonce nonce = make_nonce();
  std::uint64_t word = 0;
  std::memcpy(&word, nonce.data(), sizeof(word));
  return fmt::format("{:016x}", word);
}

/// Nothing if there is no such file, or none that can be read.
std::optional<std::string> read_file(const fs::path& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return std::nullopt;
  std::string text;
  std::array<char, 4096> piece;
  for (;;) {
    const ssize_t got = ::read(fd.get(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::nullopt;
    if (got == 0) return text;
    text.append(piece.data(), static_cast<std::size_t>(got));
  }
}

/// Shared directories cannot tell that something changed, so they are looked at: soon at first,
/// then less often. False when the deadline has passed.
class Pace {
 public:
  explicit Pace(Deadline deadline) : deadline_(deadline) {}
  bool wait() {
    if (deadline_.passed()) return false;
    std::this_thread::sleep_until(earlier(deadline_, Deadline::after(pause_)).point());
    pause_ = std::min(pause_ * 2, Clock::duration(std::chrono::milliseconds(50)));
    return true;
  }

 private:
  Deadline deadline_;
  Clock::duration pause_ = std::chrono::milliseconds(1);
};

fs::path hello_of(const fs::path& base, std::uint32_t rank) {
  return base / fmt::format("hello.{}", rank);
}
fs::path here_of(const fs::path& session, std::uint32_t rank) {
  return session / fmt::format("here.{}", rank);
}
fs::path complete_of(const fs::path& session) { return session / "complete"; }
/// Letters, digits and dots as they are, the rest as %XX.
fs::path key_path(const fs::path& session, std::string_view key) {
  std::string name = "key.";
  for (const char c : key) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.';
    name += plain ? std::string(1, c) : fmt::format("%{:02x}", static_cast<unsigned char>(c));
  }
  return session / name;
}

/// The session that names `number` as the hello of `rank`; nothing if it does not.
std::optional<std::string> session_naming(const std::string& text,
                                          std::uint32_t rank,
                                          const std::string& number) {
  std::istringstream lines(text);
  std::string session;
  std::uint32_t each = 0;
  std::string hello;
  if (!(lines >> session)) return std::nullopt;
  while (lines >> each >> hello) {
    if (each == rank) return hello == number ? std::optional(session) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

Result<std::shared_ptr<Store>> FileStore::open(const std::string& directory,
                                               const std::string& job,
                                               std::uint32_t rank,
                                               std::uint32_t size,
                                               Deadline deadline) {
  const fs::path base = fs::path(directory) / fmt::format("xylem-{:016x}", hash_text(job));
  std::error_code error;
  fs::create_directories(base, error);
  if (error) {
    return failure(
        Code::invalid_argument,
        fmt::format("cannot make the rendezvous directory {}: {}; name one that all ranks "
                    "can write",
                    base.string(), error.message()));
  }
  const std::shared_ptr<FileStore> store(new FileStore(base, rank, size));
  XYLEM_TRY(rank == 0 ? store->admit_all(deadline) : store->be_admitted(deadline));
  return std::shared_ptr<Store>(store);
}

FileStore::FileStore(Path base, std::uint32_t rank, std::uint32_t size)
    : base_(std::move(base)), rank_(rank), size_(size), attendance_(size) {}

FileStore::~FileStore() {
  // Of a start that failed, whoever still waits must see who had come; the next one clears up.
  if (session_.empty() || ::access(complete_of(session_).c_str(), F_OK) != 0) return;
  std::error_code ignored;
  for (const Path& path : written_) fs::remove(path, ignored);
  // The last to leave finds nobody here.
  for (fs::directory_iterator entry(session_, ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    if (entry->path() != complete_of(session_)) return;
  }
  fs::remove(complete_of(session_), ignored);
  ::rmdir(session_.c_str());
  ::rmdir(base_.c_str());
}

Status FileStore::write(const Path& path, std::string_view text) {
  const Path draft = path.parent_path() / fmt::format("draft.{}", rank_);
  constexpr mode_t kOwnerOnly = 0600;
  const UniqueFd fd(::open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kOwnerOnly));
  const auto refused = [&draft] {
    return failure(Code::exhausted,
                   fmt::format("cannot write {}: {}", draft.string(), error_text(errno)));
  };
  if (!fd) return refused();
  while (!text.empty()) {
    const ssize_t written = ::write(fd.get(), text.data(), text.size());
    if (written < 0 && errno != EINTR) return refused();
    if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
  }
  if (::rename(draft.c_str(), path.c_str()) != 0) return refused();
  if (std::ranges::find(written_, path) == written_.end()) written_.push_back(path);
  return {};
}

void FileStore::clear_earlier_start() const {
  const auto text = read_file(base_ / "session");
  if (!text) return;
  const std::string session = text->substr(0, text->find('\n'));
  const bool ours = session.size() == fresh_number().size() &&
                    session.find_first_not_of("0123456789abcdef") == std::string::npos;
  std::error_code ignored;
  if (ours) fs::remove_all(base_ / session, ignored);
}

Status FileStore::admit_all(Deadline deadline) {
  clear_earlier_start();
  const std::string number = fresh_number();
  session_ = base_ / number;
  std::error_code error;
  if (!fs::create_directory(session_, error)) {
    return failure(Code::exhausted,
                   fmt::format("cannot make {}: {}", session_.string(), error.message()));
  }
  XYLEM_TRY(write(here_of(session_, 0), ""));
  std::map<std::uint32_t, std::string> hellos;
  for (Pace pace(deadline);;) {
    bool changed = false;
    for (const std::uint32_t rank : attendance_.missing()) {
      const auto hello = read_file(hello_of(base_, rank));
      if (!hello || hellos[rank] == *hello) continue;
      hellos[rank] = *hello;
      changed = true;
    }
    if (changed) {
      std::string text = number + "\n";
      for (const auto& [rank, hello] : hellos) text += fmt::format("{} {}\n", rank, hello);
      XYLEM_TRY(write(base_ / "session", text));
    }
    take_attendance();
    if (attendance_.complete()) {
      XYLEM_TRY(write(complete_of(session_), ""));
      written_.pop_back();  // It is the last rank's to remove.
      return {};
    }
    if (!pace.wait()) return attendance_.sentence();
  }
}

Status FileStore::be_admitted(Deadline deadline) {
  const std::string number = fresh_number();
  XYLEM_TRY(write(hello_of(base_, rank_), number));
  for (Pace pace(deadline);;) {
    if (const auto text = read_file(base_ / "session")) {
      if (const auto session = session_naming(*text, rank_, number)) {
        session_ = base_ / *session;
        return write(here_of(session_, rank_), "");
      }
    }
    if (!pace.wait()) break;
  }
  return failure(Code::timed_out,
                 fmt::format("rank 0 did not come to {} in time: is XYLEM_RENDEZVOUS the same "
                             "directory, and XYLEM_JOB the same name, on all ranks?",
                             base_.string()),
                 0);
}

void FileStore::take_attendance() {
  // Whoever came to a start that is complete may have left it again.
  const bool complete = ::access(complete_of(session_).c_str(), F_OK) == 0;
  for (const std::uint32_t rank : attendance_.missing()) {
    if (complete || ::access(here_of(session_, rank).c_str(), F_OK) == 0) attendance_.came(rank);
  }
}

Status FileStore::set(std::string_view key, std::span<const std::byte> value) {
  XYLEM_TRY(check_entry(key, value.size()));
  const Path path = key_path(session_, key);
  if (::access(path.c_str(), F_OK) == 0) return set_twice(key);
  return write(path, text_of(value));
}

Result<std::vector<std::byte>> FileStore::get(std::string_view key, Deadline deadline) {
  XYLEM_TRY(check_entry(key, 0));
  const Path path = key_path(session_, key);
  for (Pace pace(deadline);;) {
    if (const auto text = read_file(path)) {
      const auto bytes = bytes_of(*text);
      return std::vector(bytes.begin(), bytes.end());
    }
    if (!pace.wait()) break;
  }
  take_attendance();
  if (!attendance_.complete()) return attendance_.sentence();
  return failure(Code::timed_out, fmt::format("key \"{}\" was not set in time", key));
}

}  // namespace xylem::runtime
