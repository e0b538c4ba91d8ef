// SPDX-License-Identifier: Apache-2.0
#include "named_file.h"

#include "bootstrap/service_thread.h"
#include "xylem/base/file.h"

#include <fmt/format.h>

namespace xylem::runtime {

Result<std::optional<std::string>> read_named_file(std::string_view setting,
                                                   const std::string& path,
                                                   Bytes most,
                                                   Deadline deadline) {
  const auto about = [&](Code code, std::string_view why) {
    return failure(code, fmt::format("{}={}: {}", setting, path, why));
  };
  // If the file system does not answer, reading blocks. So another thread reads the file.
  const auto read = [path, most, deadline] { return read_regular_file(path, most, deadline); };
  XYLEM_TRY(auto content, call_until(deadline, fmt::format("read {}", path), read));
  if (!content) {
    return about(Code::timed_out,
                 "it could not be read in time: its file system does not answer; name a file "
                 "elsewhere, or raise XYLEM_START_TIMEOUT");
  }
  if (!*content) {
    return about(content->code(), fmt::format("{}; name another", content->status().message()));
  }
  return *std::move(*content);
}

}  // namespace xylem::runtime
