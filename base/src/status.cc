// SPDX-License-Identifier: Apache-2.0
//
// Names and text of Status.
#include "xylem/base/status.h"

namespace xylem {

std::string_view name(Code code) noexcept {
  switch (code) {
    case Code::ok: return "ok";
    case Code::invalid_argument: return "invalid_argument";
    case Code::unsupported: return "unsupported";
    case Code::exhausted: return "exhausted";
    case Code::timed_out: return "timed_out";
    case Code::cancelled: return "cancelled";
    case Code::peer_lost: return "peer_lost";
    case Code::link_lost: return "link_lost";
    case Code::device_lost: return "device_lost";
    case Code::mismatch: return "mismatch";
    case Code::bad_schedule: return "bad_schedule";
    case Code::busy: return "busy";
    case Code::internal: return "internal";
  }
  return "unknown";
}

std::string Status::to_string() const {
  std::string text(name(code()));
  if (!message().empty()) {
    text += ": ";
    text += message();
  }
  return text;
}

}  // namespace xylem
