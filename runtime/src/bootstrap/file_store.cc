// SPDX-License-Identifier: Apache-2.0
//
// The store in a shared directory.
#include "bootstrap/file_store.h"

#include "bootstrap/secret.h"
#include "bootstrap/socket.h"
#include "bootstrap/store_rules.h"
#include "bootstrap/wire_format.h"
#include "xylem/base/file.h"
#include "xylem/base/hash.h"
#include "xylem/base/unique_fd.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
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

/// True if the text has the form of fresh_number(). This is checked because the number becomes part
/// of paths that are removed.
bool is_number(std::string_view text) {
  constexpr std::size_t kDigits = 16;
  return text.size() == kDigits &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

/// The content of a regular file; nothing if there is no such file, or if it cannot be read. Other
/// users who can write in the directory may have put anything at the path, for example a FIFO.
std::optional<std::string> read_file(const fs::path& path) {
  constexpr Bytes kMost{64 << 20};  // The session file has about 24 bytes for each rank.
  auto text = read_regular_file(path, kMost, Deadline::after(Clock::duration::zero()));
  return text ? std::move(text).value() : std::nullopt;
}

/// A shared directory reports no changes, so ranks poll it, at growing intervals. wait() sleeps for
/// one interval; it returns false once the deadline has passed.
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
/// The rank in the name of a hello file.
std::optional<std::uint32_t> rank_of_hello(std::string_view name) {
  constexpr std::string_view kHello = "hello.";
  if (!name.starts_with(kHello)) return std::nullopt;
  const char* const end = name.data() + name.size();
  std::uint32_t rank = 0;
  const auto [stop, error] = std::from_chars(name.data() + kHello.size(), end, rank);
  return error == std::errc() && stop == end ? std::optional(rank) : std::nullopt;
}
fs::path complete_of(const fs::path& session) { return session / "complete"; }
/// The path of the file of a key. In the file's name, letters, digits and dots of the key stay as
/// they are; other characters become %XX.
fs::path key_path(const fs::path& session, std::string_view key) {
  std::string name = "key.";
  for (const char c : key) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.';
    name += plain ? std::string(1, c) : fmt::format("%{:02x}", static_cast<unsigned char>(c));
  }
  return session / name;
}

fs::path failed_of(const fs::path& session) { return session / "failed"; }

/// The content of the session file, which rank 0 writes.
struct Session {
  std::string number;
  std::uint32_t size = 0;
  std::map<std::uint32_t, std::string> hellos;

  std::string text() const {
    std::string text = fmt::format("{} {}\n", number, size);
    for (const auto& [rank, hello] : hellos) text += fmt::format("{} {}\n", rank, hello);
    return text;
  }
};

/// The content of the session file. Nothing if there is no such file, or it cannot be read.
std::optional<Session> read_session(const fs::path& base) {
  std::istringstream lines(read_file(base / "session").value_or(""));
  Session session;
  if (!(lines >> session.number >> session.size) || !is_number(session.number)) return {};
  std::uint32_t rank = 0;
  std::string hello;
  while (lines >> rank >> hello) session.hellos.emplace(rank, hello);
  return session;
}

struct flock whole_file() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}
/// Locks a file. The kernel releases the lock when the last copy of the descriptor is closed, for
/// example at the end of the process. Returns false if the filesystem has no locks.
bool lock(int fd) {
  auto lock = whole_file();
  return ::fcntl(fd, F_OFD_SETLK, &lock) == 0;
}
/// True if a rank's process has ended without removing its here file.
bool has_died(const fs::path& here) {
  const UniqueFd fd(::open(here.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  auto lock = whole_file();
  struct stat facts {};
  const bool is_free = fd && ::fcntl(fd.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK &&
                       ::fstat(fd.get(), &facts) == 0 && facts.st_size == 0;
  // A rank that leaves in good order removes the file before it releases the lock. So if the file
  // still exists after the lock was found free, the process has died.
  return is_free && ::access(here.c_str(), F_OK) == 0;
}

/// The error for a file that could not be written, for the reason in errno.
Status refused(const fs::path& path) {
  return failure(Code::exhausted,
                 fmt::format("cannot write {}: {}", path.string(), write_error_text(errno)));
}

/// Makes `folder`, the job's folder in `directory`. `directory` itself must exist: if this rank
/// made it, it might be on a local disk, where other ranks do not see it.
Status make_folder_of_job(const std::string& directory, const fs::path& folder) {
  constexpr mode_t kByUmask = 0777;
  if (::mkdir(folder.c_str(), kByUmask) == 0 || errno == EEXIST) return {};
  const int error = errno;
  const bool is_missing = error == ENOENT || error == ENOTDIR;
  return failure(
      Code::invalid_argument,
      fmt::format("XYLEM_RENDEZVOUS=file://{}: {}", directory,
                  is_missing
                      ? "there is no such directory on this host: make it, or name one that all "
                        "ranks share"
                      : fmt::format("this rank cannot write there ({}): name a directory that "
                                    "all ranks can write",
                                    error_text(error))));
}

}  // namespace

Result<std::shared_ptr<Store>> FileStore::open(const std::string& directory,
                                               const std::string& job,
                                               std::uint32_t rank,
                                               std::uint32_t size,
                                               Deadline deadline) {
  const fs::path base = fs::path(directory) / fmt::format("xylem-{:016x}", hash_text(job));
  XYLEM_TRY(make_folder_of_job(directory, base));
  const std::shared_ptr<FileStore> store(new FileStore(base, rank, size));
  XYLEM_TRY(rank == 0 ? store->admit_all(deadline) : store->be_admitted(deadline));
  return std::shared_ptr<Store>(store);
}

FileStore::FileStore(Path base, std::uint32_t rank, std::uint32_t size)
    : base_(std::move(base)), rank_(rank), size_(size), number_(fresh_number()), joined_(size) {}

FileStore::~FileStore() {
  // After a failed start the files stay, so that ranks that still wait can read why it failed and
  // which ranks had joined. The next start removes the files.
  const bool is_complete = !session_.empty() && ::access(complete_of(session_).c_str(), F_OK) == 0;
  if (!is_complete || ::access(failed_of(session_).c_str(), F_OK) == 0) return;
  std::error_code ignored;
  for (const Path& path : written_) fs::remove(path, ignored);
  // The last rank to leave finds no file except `complete`. It removes this file and the folders.
  for (fs::directory_iterator entry(session_, ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    if (entry->path() != complete_of(session_)) return;
  }
  fs::remove(complete_of(session_), ignored);
  ::rmdir(session_.c_str());
  ::rmdir(base_.c_str());
}

// --- Writing ----------------------------------------------------------------

std::filesystem::path FileStore::draft() const { return base_ / ("draft." + number_); }

Result<UniqueFd> FileStore::write_draft(std::string_view text) const {
  constexpr mode_t kOwnerOnly = 0600;
  const WriteSignalsBlocked blocked;
  // Other users who can write in the directory may have put a link or a FIFO at this path.
  ::unlink(draft().c_str());
  UniqueFd fd(::open(draft().c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kOwnerOnly));
  if (!fd) return refused(draft());
  while (!text.empty()) {
    const ssize_t written = ::write(fd.get(), text.data(), text.size());
    if (written < 0 && errno != EINTR) {
      const Status why = refused(draft());
      ::unlink(draft().c_str());
      return why;
    }
    if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
  }
  return fd;
}

Status FileStore::write(const Path& path, std::string_view text) {
  XYLEM_TRY(write_draft(text).status());
  if (::rename(draft().c_str(), path.c_str()) != 0) {
    const Status why = refused(path);
    ::unlink(draft().c_str());
    return why;
  }
  if (std::ranges::find(written_, path) == written_.end()) written_.push_back(path);
  return {};
}

Result<bool> FileStore::write_new(const Path& path, std::string_view text) {
  XYLEM_TRY(write_draft(text).status());
  return link_draft(path);
}

Result<bool> FileStore::link_draft(const Path& path) {
  const bool linked = ::link(draft().c_str(), path.c_str()) == 0;
  const Status status = linked || errno == EEXIST ? Status() : refused(path);
  ::unlink(draft().c_str());
  if (!status) return status;
  if (linked) written_.push_back(path);
  return linked;
}

Result<bool> FileStore::take_place() {
  XYLEM_TRY(place_, write_draft(""));
  // The file is locked before link_draft() makes it visible as a here file. If the filesystem has
  // no locks, the file has content, so that has_died() ignores it.
  if (!lock(place_.get())) {
    XYLEM_TRY(place_, write_draft("cannot be locked"));
  }
  return link_draft(here_of(session_, rank_));
}

// --- Joining ----------------------------------------------------------------

void FileStore::clear_earlier_start() const {
  std::error_code ignored;
  if (const auto session = read_session(base_)) fs::remove_all(base_ / session->number, ignored);
}

Status FileStore::admit_all(Deadline deadline) {
  clear_earlier_start();
  session_ = base_ / number_;
  std::error_code error;
  if (!fs::create_directory(session_, error)) {
    return failure(Code::exhausted,
                   fmt::format("cannot make {}: {}", session_.string(), error.message()));
  }
  XYLEM_TRY(take_place().status());
  std::map<std::uint32_t, std::string> hellos;
  Status failed;
  for (Pace pace(deadline); failed;) {
    XYLEM_TRY(admit(hellos));
    if (joined_.complete()) {
      XYLEM_TRY(write(complete_of(session_), ""));
      written_.pop_back();  // The last rank to leave removes this file.
      return {};
    }
    failed = verdict();
    if (failed && !pace.wait()) return abandon(who_is_missing());
  }
  // The start has failed. Late ranks are still admitted, so that they read the reason of the
  // failure, too.
  for (Pace pace(earlier(deadline, Deadline::after(kFarewell))); pace.wait();) {
    XYLEM_TRY(admit(hellos));
    if (joined_.complete()) break;
  }
  return failed;
}

Status FileStore::admit(std::map<std::uint32_t, std::string>& hellos) {
  XYLEM_TRY(const bool changed, read_hellos(hellos));
  if (changed) XYLEM_TRY(write(base_ / "session", Session{number_, size_, hellos}.text()));
  count_joined();
  return {};
}

Result<bool> FileStore::read_hellos(std::map<std::uint32_t, std::string>& hellos) const {
  // Hellos of ranks beyond this job's size are read, too: such a rank is admitted, and then reports
  // the mismatch of sizes (enter()).
  std::error_code error;
  bool changed = false;
  for (fs::directory_iterator entry(base_, error), end; !error && entry != end;
       entry.increment(error)) {
    const auto rank = rank_of_hello(entry->path().filename().string());
    if (!rank) continue;
    const auto hello = read_file(entry->path());
    if (!hello || !is_number(*hello) || hellos[*rank] == *hello) continue;
    hellos[*rank] = *hello;
    changed = true;
  }
  if (!error) return changed;
  return failure(Code::exhausted,
                 fmt::format("cannot read {}: {}", base_.string(), error.message()));
}

Status FileStore::be_admitted(Deadline deadline) {
  XYLEM_TRY(write(hello_of(base_, rank_), number_));
  for (Pace pace(deadline);;) {
    if (const auto session = read_session(base_)) {
      const auto hello = session->hellos.find(rank_);
      if (hello != session->hellos.end() && hello->second == number_) {
        return enter(session->number, session->size);
      }
    }
    const auto hello = read_file(hello_of(base_, rank_));
    if (hello && *hello != number_) return another_of_this_rank();
    if (!pace.wait()) return not_admitted();
  }
}

Status FileStore::enter(const std::string& session, std::uint32_t size) {
  session_ = base_ / session;
  if (size != size_) {
    return abandon(failure(Code::mismatch,
                           fmt::format("rank {} was started in a job of {} ranks, rank 0 in one of "
                                       "{}: give all the same size",
                                       rank_, size_, size),
                           rank_));
  }
  XYLEM_TRY(const bool is_first, take_place());
  return is_first ? Status() : another_of_this_rank();
}

Status FileStore::another_of_this_rank() const {
  return failure(Code::busy,
                 fmt::format("another process has come as rank {} (at {}): give each rank once, or "
                             "wait for an earlier start to end",
                             rank_, base_.string()),
                 rank_);
}

Status FileStore::not_admitted() const {
  // Once a start is complete, rank 0 reads no hellos. So a second process of this rank is never
  // admitted.
  const auto session = read_session(base_);
  if (session && ::access(here_of(base_ / session->number, rank_).c_str(), F_OK) == 0) {
    return another_of_this_rank();
  }
  return failure(Code::timed_out,
                 fmt::format("rank 0 did not come to {} in time: is XYLEM_RENDEZVOUS the same "
                             "directory, and XYLEM_JOB the same name, on all ranks?",
                             base_.string()),
                 0);
}

Status FileStore::who_is_missing() const {
  const Status who = joined_.missing_error();
  return failure(who.code(), fmt::format("{} (in {})", who.message(), base_.string()), who.peer());
}

void FileStore::count_joined() {
  // Once the start is complete, a rank may have left and removed its here file. So all ranks count
  // as present.
  const bool complete = ::access(complete_of(session_).c_str(), F_OK) == 0;
  for (const std::uint32_t rank : joined_.missing()) {
    if (complete || ::access(here_of(session_, rank).c_str(), F_OK) == 0) joined_.add(rank);
  }
}

// --- Keys, and the failure of the start --------------------------------------

Status FileStore::set(std::string_view key, std::span<const std::byte> value) {
  XYLEM_TRY(check_entry(key, value.size()));
  XYLEM_TRY(verdict());
  XYLEM_TRY(const bool is_first, write_new(key_path(session_, key), text_of(value)));
  return is_first ? Status() : set_twice(key);
}

Result<std::vector<std::byte>> FileStore::get(std::string_view key, Deadline deadline) {
  XYLEM_TRY(check_entry(key, 0));
  const Path path = key_path(session_, key);
  for (Pace pace(deadline);;) {
    XYLEM_TRY(verdict());
    if (const auto text = read_file(path)) {
      const auto bytes = bytes_of(*text);
      return std::vector(bytes.begin(), bytes.end());
    }
    if (!pace.wait()) break;
  }
  count_joined();
  if (!joined_.complete()) return who_is_missing();
  return failure(Code::timed_out, fmt::format("key \"{}\" was not set in time", key));
}

Status FileStore::verdict() {
  if (const auto text = read_file(failed_of(session_))) return read_verdict(bytes_of(*text));
  // So that every death is noticed, each rank checks rank 0 and the next higher rank. Until all
  // ranks have joined, rank 0 also checks all others in turn, since the rank that should check them
  // may not have joined yet.
  XYLEM_TRY(look_at(0));
  XYLEM_TRY(look_at((rank_ + 1) % size_));
  constexpr std::uint32_t kLooks = 16;
  for (std::uint32_t i = 0; rank_ == 0 && !joined_.complete() && i < std::min(kLooks, size_); ++i) {
    XYLEM_TRY(look_at(next_check_++ % size_));
  }
  return {};
}

Status FileStore::look_at(std::uint32_t rank) {
  if (rank == rank_ || !has_died(here_of(session_, rank))) return {};
  return abandon(
      failure(Code::peer_lost, fmt::format("rank {} ended during the start", rank), rank));
}

Status FileStore::abandon(const Status& why) {
  const ByteVector text = write_verdict(why);
  const auto is_first = write_new(failed_of(session_), text_of(text));
  if (!is_first || *is_first) return why;
  const auto said = read_file(failed_of(session_));
  return said ? read_verdict(bytes_of(*said)) : why;
}

}  // namespace xylem::runtime
