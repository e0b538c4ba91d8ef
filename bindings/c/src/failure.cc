// SPDX-License-Identifier: Apache-2.0
#include "failure.h"

#include <exception>
#include <new>
#include <utility>

namespace xylem::c {
namespace {

/// The last error of a thread. Ranks can be threads of one process, so each thread has its own
/// LastError. LastError has no destructor, so it stays usable while the program's thread-local and
/// static objects are destroyed.
struct LastError {
  const Status* status = nullptr;  ///< Owns `text`; null if `text` is a literal.
  const char* text = "";
  std::uint32_t peer = XYLEM_NO_RANK;
};
constinit thread_local LastError last_error;

void keep(const LastError& error) noexcept {
  delete last_error.status;  // NOLINT(cppcoreguidelines-owning-memory)
  last_error = error;
}

/// The destructor frees the last error when the thread ends.
struct AtThreadEnd {
  AtThreadEnd() noexcept = default;
  AtThreadEnd(const AtThreadEnd&) = delete;
  AtThreadEnd& operator=(const AtThreadEnd&) = delete;
  ~AtThreadEnd() { keep({}); }
};

xylem_status keep_literal(Code code, const char* text) noexcept {
  keep({nullptr, text, XYLEM_NO_RANK});
  return static_cast<xylem_status>(code);
}

}  // namespace

xylem_status report(Status status) noexcept {
  if (status) return XYLEM_OK;
  thread_local const AtThreadEnd kFrees;
  const Code code = status.code();
  // NOLINTNEXTLINE(cppcoreguidelines-owning-memory)
  const auto* const kept = new (std::nothrow) Status(std::move(status));
  if (kept == nullptr) return keep_literal(code, "out of memory");
  // message() is a view of a whole std::string, so the text is null-terminated.
  keep({kept, kept->message().data(), kept->peer().value_or(XYLEM_NO_RANK)});
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
  const auto* const status = xylem::c::last_error.status;
  return status != nullptr && status->holds_buffers() ? 1 : 0;
}
