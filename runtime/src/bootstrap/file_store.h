// SPDX-License-Identifier: Apache-2.0
//
// FileStore: a store in a directory that all ranks share. A key is a file, which is written under
// another name and then renamed, so that no rank reads half a value.
//
//   <directory>/<job>/hello.<rank>       a random number of the rank for this start
//   <directory>/<job>/session            rank 0's number, the job's size, the hellos read by rank 0
//   <directory>/<job>/<session>/here.*   one for each rank that has read the session; locked while
//                                        the rank's process lives
//   <directory>/<job>/<session>/complete exists once all ranks have joined
//   <directory>/<job>/<session>/failed   why the start has failed, as the first rank reported it
//   <directory>/<job>/<session>/key.*    the values
//
// Files left by an earlier start that was killed do no harm: a rank accepts a session only if it
// contains the number that the rank has just drawn, which only a living rank 0 can have read. When
// its FileStore is destroyed, a rank removes the files that it wrote, since no rank needs them
// after the start. The files of a failed start are removed by the next start. Two processes with
// the same rank are detected: one of them overwrites the hello of the other, or finds that the here
// file exists already. While ranks wait, they check whether other ranks still live: the kernel
// releases the lock of a here file when the process ends, also on shared filesystems that have
// locks.
#pragma once

#include "bootstrap/rank_set.h"
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
  /// Blocks until this rank has read a session with its own hello; at rank 0, until all ranks have.
  /// Fails with invalid_argument if `directory` does not exist or cannot be written, with timed_out
  /// naming the ranks that did not join, with mismatch if rank 0 was started with another job size,
  /// and with busy if another process has the same rank.
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
  Status abandon(const Status& why) override;

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
  Status who_is_missing() const;
  void clear_earlier_start() const;
  void count_joined();
  /// If the process of rank `rank` has died, fails the start on all ranks, and returns its verdict
  /// (start_store.h). Otherwise returns OK.
  Status look_at(std::uint32_t rank);
  Path draft() const;
  Result<UniqueFd> write_draft(std::string_view text) const;
  /// Writes a file; replaces its content if it exists.
  Status write(const Path& path, std::string_view text);
  /// Makes this rank's here file; false if there is one already.
  Result<bool> take_place();
  /// Renames the draft to `path`, but never replaces a file: returns false, and discards the draft,
  /// if `path` exists already.
  Result<bool> link_draft(const Path& path);
  Result<bool> write_new(const Path& path, std::string_view text);

  Path base_, session_;
  std::uint32_t rank_, size_;
  std::string number_;  ///< A random number that identifies this process in this start.
  RankSet joined_;
  std::vector<Path> written_;
  std::uint32_t next_check_ = 0;  ///< The rank that rank 0 checks next.
  UniqueFd place_;  ///< This rank's here file, whose lock shows that the process lives.
};

}  // namespace xylem::runtime
