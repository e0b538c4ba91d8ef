// SPDX-License-Identifier: Apache-2.0
//
// Replaces a file by rename(), or writes it in place.
#include "bench/report_file.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <optional>
#include <system_error>

namespace xylem::tools {
namespace {

Status cannot_write(const std::string& path) {
  return failure(Code::invalid_argument, fmt::format("{} cannot be written: {}", path,
                                                     std::generic_category().message(errno)));
}

/// Writes all of `text` and closes the file. Returns false on failure, with the reason in errno. A
/// network file system reports some failures only when the file is closed.
bool write_and_close(UniqueFd file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file.get(), text.data(), text.size());
    if (written >= 0) text.remove_prefix(static_cast<std::size_t>(written));
    else if (errno != EINTR) return false;
  }
  return ::close(file.release()) == 0;
}

/// Whether a new file may replace `path`: there is no such file, or it is a regular file that may
/// be written and has no other hard link.
bool is_replaceable(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return errno == ENOENT;
  return S_ISREG(status.st_mode) && status.st_nlink == 1 && ::euidaccess(path.c_str(), W_OK) == 0;
}

/// A new file that is to replace another file in the same folder. The destructor removes the new
/// file if it has not replaced the other.
class Successor {
 public:
  static std::optional<Successor> make(const std::string& path) {
    constexpr int kMostAttempts = 100;  // A process on another host may use the same name.
    for (int i = 0; i < kMostAttempts; ++i) {
      std::string name = fmt::format("{}.{}.part", path, ::getpid() + i);
      UniqueFd file(::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
      if (file) return Successor(std::move(name), std::move(file));
      if (errno != EEXIST) break;
    }
    return std::nullopt;
  }
  Successor(Successor&& other) noexcept
      : name_(std::exchange(other.name_, {})), file_(std::move(other.file_)) {}
  Successor& operator=(Successor&&) = delete;
  Successor(const Successor&) = delete;
  Successor& operator=(const Successor&) = delete;
  ~Successor() {
    if (!name_.empty()) ::unlink(name_.c_str());
  }

  /// Returns false, with the reason in errno, on failure.
  bool write(std::string_view text) { return write_and_close(std::move(file_), text); }
  /// Renames the new file to `path`. If there is a file at `path`, the new file first gets the
  /// owner and permissions of that file. Returns false, with the reason in errno, on failure.
  bool replace(const std::string& path) {
    struct stat former {};
    if (::stat(path.c_str(), &former) == 0 &&
        (::chown(name_.c_str(), former.st_uid, former.st_gid) != 0 ||
         ::chmod(name_.c_str(), former.st_mode & 07777U) != 0)) {
      return false;
    }
    if (::rename(name_.c_str(), path.c_str()) != 0) return false;
    name_.clear();
    return true;
  }

 private:
  Successor(std::string name, UniqueFd file) : name_(std::move(name)), file_(std::move(file)) {}
  std::string name_;
  UniqueFd file_;
};

}  // namespace

Result<ReportFile> ReportFile::open(const std::string& path) {
  if (is_replaceable(path) && Successor::make(path)) return ReportFile(path, UniqueFd());
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  if (!file) return cannot_write(path);
  return ReportFile(path, std::move(file));
}

Status ReportFile::write(std::string_view text) {
  if (!in_place_) {
    auto successor = Successor::make(path_);
    if (successor && !successor->write(text)) return cannot_write(path_);
    if (successor && successor->replace(path_)) return {};
    // The file cannot be replaced, for instance if it is a mount point.
    in_place_.reset(::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
    if (!in_place_) return cannot_write(path_);
  }
  struct stat status {};
  const bool is_regular = ::fstat(in_place_.get(), &status) == 0 && S_ISREG(status.st_mode);
  if (is_regular && ::ftruncate(in_place_.get(), 0) != 0) return cannot_write(path_);
  return write_and_close(std::move(in_place_), text) ? Status() : cannot_write(path_);
}

}  // namespace xylem::tools
