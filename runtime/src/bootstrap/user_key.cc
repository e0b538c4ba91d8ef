// SPDX-License-Identifier: Apache-2.0
//
// The file of the user's key.
#include "bootstrap/user_key.h"

#include "bootstrap/secret.h"
#include "bootstrap/socket.h"
#include "bootstrap/wire_format.h"
#include "xylem/base/file.h"
#include "xylem/base/unique_fd.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>

namespace xylem::runtime {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kOwnerOnly = 0600;
constexpr mode_t kOwnersFolder = 0700;
constexpr mode_t kOthers = 0077;
constexpr mode_t kWrittenByOthers = 0022;
constexpr std::string_view kSetSecret = "set XYLEM_SECRET to the same text on all ranks";

Status not_alone(const fs::path& path) {
  return failure(Code::invalid_argument,
                 fmt::format("{} is to hold the key of this user's jobs, but is not this user's "
                             "alone: remove it, or {}",
                             path.string(), kSetSecret));
}

/// The error for a folder of another user. It does not propose to remove the folder, since this
/// user may be unable to.
Status not_ours(const fs::path& folder) {
  return failure(Code::invalid_argument,
                 fmt::format("{} is to hold the key of this user's jobs, but is not a directory of "
                             "this user: {}",
                             folder.string(), kSetSecret));
}

Status unusable(const fs::path& path) {
  return failure(Code::exhausted,
                 fmt::format("cannot use {}, which is to hold the key of this user's jobs: {}; {}",
                             path.string(), write_error_text(errno), kSetSecret));
}

bool is_ours_alone(const struct stat& facts) {
  return facts.st_uid == ::geteuid() && (facts.st_mode & kOthers) == 0;
}

/// True if the path is a directory of this user, not a link to one, and has none of the mode bits
/// `refused`.
bool is_ours(const fs::path& folder, mode_t refused) {
  struct stat facts {};
  return ::lstat(folder.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode) &&
         facts.st_uid == ::geteuid() && (facts.st_mode & refused) == 0;
}

/// Makes the folder if it is missing. True if the folder belongs to this user.
bool make_folder(const fs::path& folder) {
  return (::mkdir(folder.c_str(), kOwnersFolder) == 0 || errno == EEXIST) && is_ours(folder, 0);
}

/// The home directory of this user; nothing if the user has none.
std::optional<fs::path> home_of_this_user() {
  constexpr std::size_t kRoom = 16 * 1024;
  std::string room(kRoom, '\0');
  passwd entry{};
  passwd* found = nullptr;
  const int error = ::getpwuid_r(::geteuid(), &entry, room.data(), room.size(), &found);
  if (error != 0 || found == nullptr || *found->pw_dir == '\0') return std::nullopt;
  return fs::path(found->pw_dir);
}

/// Reads the key; nothing if the file does not exist yet.
Result<std::optional<Nonce>> read_key(const fs::path& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd && errno == ENOENT) return std::optional<Nonce>();
  if (!fd && errno == ELOOP) return not_alone(path);
  if (!fd) return unusable(path);
  struct stat facts {};
  if (::fstat(fd.get(), &facts) != 0) return unusable(path);
  Nonce key{};
  if (!S_ISREG(facts.st_mode) || !is_ours_alone(facts)) return not_alone(path);
  if (::read(fd.get(), key.data(), key.size()) != static_cast<ssize_t>(key.size())) {
    return not_alone(path);
  }
  return std::optional(key);
}

/// Makes the key. If several processes make it at the same time, the key of the first one is kept.
Status make_key(const fs::path& path) {
  const WriteSignalsBlocked blocked;
  std::string draft = path.string() + ".XXXXXX";
  const UniqueFd fd(::mkostemp(draft.data(), O_CLOEXEC));
  if (!fd) return unusable(path);
  const Nonce key = make_nonce();
  const bool is_written =
      ::fchmod(fd.get(), kOwnerOnly) == 0 &&
      ::write(fd.get(), key.data(), key.size()) == static_cast<ssize_t>(key.size()) &&
      (::link(draft.c_str(), path.c_str()) == 0 || errno == EEXIST);
  const Status status = is_written ? Status() : unusable(path);
  ::unlink(draft.c_str());
  return status;
}

}  // namespace

KeyPlaces KeyPlaces::of_this_user() {
  return {home_of_this_user(), fmt::format("/run/user/{}", ::geteuid()), "/tmp"};
}

fs::path user_key_folder(const KeyPlaces& places) {
  if (places.home) {
    const fs::path state = *places.home / ".local" / "state";
    std::error_code ignored;
    fs::create_directories(state, ignored);
    fs::path folder = state / "xylem";
    if (make_folder(folder) && ::eaccess(folder.c_str(), W_OK) == 0) return folder;
  }
  // The system makes the directory `runtime` when the user logs in, and other users cannot make it.
  if (is_ours(places.runtime, kWrittenByOthers)) return places.runtime / "xylem";
  return places.temporary / fmt::format("xylem-{}", ::geteuid());
}

Result<std::string> secret_of_user(const fs::path& folder, std::string_view job) {
  if (::mkdir(folder.c_str(), kOwnersFolder) != 0 && errno != EEXIST) return unusable(folder);
  // In /tmp, another user may have made the folder first. The owner of a folder can replace the
  // files in it, so the folder must belong to this user.
  if (!is_ours(folder, 0)) return not_ours(folder);
  const fs::path path = folder / "key";
  XYLEM_TRY(auto key, read_key(path));
  if (!key) {
    XYLEM_TRY(make_key(path));
    XYLEM_TRY(key, read_key(path));
    if (!key) return unusable(path);
  }
  return secret_of_job(fmt::format("{} {}", text_of(*key), job));
}

}  // namespace xylem::runtime
