// SPDX-License-Identifier: Apache-2.0
//
// FileStore: a store in a directory that all ranks share. A key is a file, which is written under
// another name and then renamed, so that no rank reads half a value.
//
//   <directory>/<job>/hello.<rank>       a number that the rank drew for this start
//   <directory>/<job>/session            rank 0's number, its size, and the hellos it has seen
//   <directory>/<job>/<session>/here.*   one for each rank that has read the session; locked while
//                                        the rank's process lives
//   <directory>/<job>/<session>/complete exists once all ranks are here
//   <directory>/<job>/<session>/failed   why the start has failed, by the first rank to say so
//   <directory>/<job>/<session>/key.*    the values
//
// Files left by an earlier start that was killed do no harm: a rank accepts a session only if it
// contains the number that the rank has just drawn, which only a living rank 0 can have read. Ranks
// remove what they wrote when their store ends, since no rank needs it once the start is complete.
// The files of a failed start are removed by the next start. Two processes of one rank are
// detected: the hello of one of them is overwritten, or its here file exists already. While ranks
// wait, they check whether others still live: a lock ends with its process, also on shared
// filesystems that have locks.
#pragma once

#include "bootstrap/joined_ranks.h"
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
  /// Waits until this rank and rank 0 (at rank 0: all ranks) have seen each other. Fails with
  /// invalid_argument if `directory` does not exist or cannot be written, with timed_out naming the
  /// ranks that did not join, with mismatch if rank 0 has another job size, and with busy if
  /// another process has this rank.
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
  void take_attendance();
  /// If the process of this rank has died, makes the start fail on all ranks, and returns the
  /// reason for the failure: that of the first rank that gave one. Otherwise OK.
  Status look_at(std::uint32_t rank);
  Path draft() const;
  Result<UniqueFd> write_draft(std::string_view text) const;
  /// Writes the file, replacing what it holds.
  Status write(const Path& path, std::string_view text);
  /// Makes this rank's here file; false if there is one already.
  Result<bool> take_place();
  /// Links the draft to this name. False if there is such a file already, which then stays
  /// unchanged.
  Result<bool> link_draft(const Path& path);
  Result<bool> write_new(const Path& path, std::string_view text);

  Path base_, session_;
  std::uint32_t rank_, size_;
  std::string number_;  ///< A number that was drawn for this start; no other process has it.
  JoinedRanks joined_;
  std::vector<Path> written_;
  std::uint32_t next_check_ = 0;  ///< The rank that rank 0 checks next.
  UniqueFd place_;  ///< This rank's here file, whose lock shows that the process lives.
};

}  // namespace xylem::runtime
