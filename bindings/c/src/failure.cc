// SPDX-License-Identifier: Apache-2.0
#include "failure.h"

#include <exception>
#include <new>
#include <utility>

namespace xylem::c {
namespace {

/// The last error of a thread. Each thread has its own, so ranks that are threads of one process do
/// not share it.
struct LastError {
  Status status;  ///< Keeps `text` alive if it is not a literal.
  const char* text = "";
  std::uint32_t peer = XYLEM_NO_RANK;
};
thread_local LastError last_error;

xylem_status keep_literal(Code code, const char* text) noexcept {
  last_error = {Status(), text, XYLEM_NO_RANK};
  return static_cast<xylem_status>(code);
}

}  // namespace

xylem_status report(Status status) noexcept {
  if (status) return XYLEM_OK;
  const Code code = status.code();
  const std::uint32_t peer = status.peer().value_or(XYLEM_NO_RANK);
  // The view covers a whole std::string, so it is null-terminated.
  const char* text = status.message().data();
  last_error = {std::move(status), text, peer};
  return static_cast<xylem_status>(code);
}

xylem_status report_exception() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return keep_literal(Code::exhausted, "out of memory");
  } catch (const std::exception& error) {
    try {
      return report(failure(Code::internal, std::string("unexpected exception: ") + error.what()));
    } catch (...) {
      return keep_literal(Code::exhausted, "out of memory");
    }
  } catch (...) {
    return keep_literal(Code::internal, "an exception that is no std::exception");
  }
}

}  // namespace xylem::c

const char* xylem_last_error(void) { return xylem::c::last_error.text; }
uint32_t xylem_last_error_peer(void) { return xylem::c::last_error.peer; }
int xylem_last_error_holds_buffers(void) {
  return xylem::c::last_error.status.holds_buffers() ? 1 : 0;
}
