// SPDX-License-Identifier: Apache-2.0
//
// Appending of bytes.
#include "bootstrap/wire_format.h"

namespace xylem::runtime {

WireWriter& WireWriter::raw(ByteSpan bytes) {
  out_.insert(out_.end(), bytes.begin(), bytes.end());
  return *this;
}

}  // namespace xylem::runtime
