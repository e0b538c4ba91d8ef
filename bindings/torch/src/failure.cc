// SPDX-License-Identifier: Apache-2.0
#include "failure.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <cstddef>

namespace xylem::pytorch {
namespace {

[[noreturn]] void raise(Code code, std::string text) {
  switch (code) {
    case Code::invalid_argument: C10_THROW_ERROR(ValueError, std::move(text));
    case Code::unsupported: C10_THROW_ERROR(NotImplementedError, std::move(text));
    default: C10_THROW_ERROR(DistBackendError, std::move(text));
  }
}

std::string text_of(const Status& failure) { return "xylem: " + failure.to_string(); }

}  // namespace

std::exception_ptr exception_of(const Status& failure, const std::string& note) {
  try {
    raise(failure.code(), text_of(failure) + note);
  } catch (...) {
    return std::current_exception();
  }
}

bool breaks_group(const Status& status) noexcept {
  return !status && status.code() != Code::invalid_argument && status.code() != Code::unsupported;
}

bool is_worth_a_record(const Status& status) noexcept {
  return status.code() == Code::timed_out || status.code() == Code::mismatch;
}

std::string world_ranks_note(const std::vector<std::uint64_t>& world_ranks) {
  bool is_same = true;
  for (std::size_t rank = 0; rank < world_ranks.size(); ++rank) {
    is_same = is_same && world_ranks[rank] == rank;
  }
  if (is_same) return {};
  return c10::str(" (this group's ranks, from 0 on, are ranks ", c10::Join(", ", world_ranks),
                  " of the world)");
}

const char* remedy_of_group_limit(const Status& failure) {
  if (failure.code() != Code::timed_out) return "";
  return " (the timeout of a group is an argument of init_process_group and new_group)";
}

void check(const Status& status, const std::string& note) {
  if (!status) raise(status.code(), text_of(status) + note);
}

void refuse(const std::string& why) { raise(Code::invalid_argument, "xylem: " + why); }

}  // namespace xylem::pytorch
