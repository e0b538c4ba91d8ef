// SPDX-License-Identifier: Apache-2.0
#include "failure.h"

#include <c10/util/Exception.h>

namespace xylem::pytorch {
namespace {

[[noreturn]] void raise(Code code, std::string text) {
  switch (code) {
    case Code::invalid_argument: C10_THROW_ERROR(ValueError, std::move(text));
    case Code::unsupported: C10_THROW_ERROR(NotImplementedError, std::move(text));
    default: C10_THROW_ERROR(DistBackendError, std::move(text));
  }
}

std::string text_of(const Status& failure) {
  std::string text = "xylem: " + failure.to_string();
  if (failure.code() == Code::timed_out) {
    text += " (the timeout of a group is an argument of init_process_group and new_group)";
  }
  return text;
}

}  // namespace

std::exception_ptr exception_of(const Status& failure) {
  try {
    raise(failure.code(), text_of(failure));
  } catch (...) {
    return std::current_exception();
  }
}

void check(const Status& status) {
  if (!status) raise(status.code(), text_of(status));
}

void refuse(const std::string& why) { raise(Code::invalid_argument, "xylem: " + why); }

}  // namespace xylem::pytorch
