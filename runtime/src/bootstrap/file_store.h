// SPDX-License-Identifier: Apache-2.0
//
// FileStore: a store in a directory that all ranks share. A key is a file, written beside its place
// and renamed, so that nobody reads half a value.
//
//   <directory>/<job>/hello.<rank>       a number that rank drew for this start
//   <directory>/<job>/session            rank 0's number and the hello of each rank it has seen
//   <directory>/<job>/<session>/here.*   who has read them
//   <directory>/<job>/<session>/complete that all have
//   <directory>/<job>/<session>/key.*    the values
//
// Files of an earlier start that was killed do not confuse: a rank believes a session only when
// that names its own fresh number, which only a living rank 0 can have read. Ranks remove what they
// wrote when their store ends, since nobody needs it once the start is over; a start to which not
// all came is removed by the next.
#pragma once

#include "bootstrap/attendance.h"
#include "xylem/base/clock.h"
#include "xylem/runtime/store.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace xylem::runtime {

class FileStore final : public Store {
 public:
  /// Waits until this rank and rank 0 (at rank 0: all ranks) have seen each other.
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

 private:
  using Path = std::filesystem::path;

  FileStore(Path base, std::uint32_t rank, std::uint32_t size);
  Status admit_all(Deadline deadline);
  Status be_admitted(Deadline deadline);
  void clear_earlier_start() const;
  void take_attendance();
  Status write(const Path& path, std::string_view text);

  Path base_, session_;
  std::uint32_t rank_, size_;
  Attendance attendance_;
  std::vector<Path> written_;
};

}  // namespace xylem::runtime
