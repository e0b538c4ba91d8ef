// SPDX-License-Identifier: Apache-2.0
//
// FileStore: a store in a directory that all ranks share. A key is a file, written beside its place
// and renamed, so that nobody reads half a value.
//
//   <directory>/<job>/hello.<rank>       a number that rank drew for this start
//   <directory>/<job>/session            rank 0's number, its size, and the hellos it has seen
//   <directory>/<job>/<session>/here.*   who has read them; locked while its process lives
//   <directory>/<job>/<session>/complete that all have
//   <directory>/<job>/<session>/failed   why the start has failed: the first to say so
//   <directory>/<job>/<session>/key.*    the values
//
// Files of an earlier start that was killed do not confuse: a rank believes a session only when
// that names its own fresh number, which only a living rank 0 can have read. Ranks remove what they
// wrote when their store ends, since nobody needs it once the start is over; a start that failed
// is removed by the next. Two processes of one rank show: the hello of one of them is overwritten,
// or its place among those who are here is taken. While ranks wait they look whether others still
// live: a lock ends with its process, on shared filesystems, too, where these have locks.
#pragma once

#include "bootstrap/attendance.h"
#include "bootstrap/start_store.h"
#include "xylem/base/clock.h"
#include "xylem/base/unique_fd.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace xylem::runtime {

class FileStore final : public StartStore {
 public:
  /// Waits until this rank and rank 0 (at rank 0: all ranks) have seen each other. Codes: timed_out
  /// names who did not come; mismatch, ranks of jobs of different sizes; busy, another process is
  /// of this rank.
  static Result<std::shared_ptr<Store>> open(const std::string& directory,
                                             const std::string& job,
                                             std::uint32_t rank,
                                             std::uint32_t size,
                                             Deadline deadline);
  FileStore(const FileStore&) = delete;
  FileStore& operator=(const FileStore&) = delete;
  ~FileStore() override;

  Status set(std::string_view key, std::span<const std::byte> value) override;
  Result<std::vector<std::byte>> get(std::string_view key, Deadline deadline) override;
  Status verdict() override;
  Status give_up(const Status& why) override;

 private:
  using Path = std::filesystem::path;

  FileStore(Path base, std::uint32_t rank, std::uint32_t size);
  Status admit_all(Deadline deadline);
  Status admit(std::map<std::uint32_t, std::string>& hellos);
  Result<bool> read_hellos(std::map<std::uint32_t, std::string>& hellos) const;
  Status be_admitted(Deadline deadline);
  Status enter(const std::string& session, std::uint32_t size);
  Status not_admitted() const;
  Status another_of_this_rank() const;
  void clear_earlier_start() const;
  void take_attendance();
  /// The verdict, if that rank has died.
  Status look_at(std::uint32_t rank);
  Path draft() const;
  Result<UniqueFd> write_draft(std::string_view text) const;
  /// Writes the file, over what it may hold.
  Status write(const Path& path, std::string_view text);
  /// Takes this rank's place among those who are here; false if it is taken.
  Result<bool> take_place();
  /// False if there is such a file, which is left as it is.
  Result<bool> link_draft(const Path& path);
  Result<bool> write_new(const Path& path, std::string_view text);

  Path base_, session_;
  std::uint32_t rank_, size_;
  std::string number_;  ///< Drawn for this start; no other process has it.
  Attendance attendance_;
  std::vector<Path> written_;
  std::uint32_t next_look_ = 0;  ///< Rank 0's, at one rank after the other.
  UniqueFd place_;               ///< Our here file, whose lock says that we live.
};

}  // namespace xylem::runtime
