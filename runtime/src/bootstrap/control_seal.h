// SPDX-License-Identifier: Apache-2.0
//
// Records: what a control connection carries once its handshake is done. Each is encrypted, so that
// nobody on the way reads it, changes it, leaves it out or repeats it.
//
//   u32 bytes | these, encrypted | tag 16
#pragma once

#include "bootstrap/handshake.h"
#include "bootstrap/wire.h"
#include "xylem/base/status.h"
#include "xylem/transport/seal.h"

#include <cstddef>

namespace xylem::runtime {

class RecordWriter {
 public:
  explicit RecordWriter(const transport::SealKey& key);
  /// Appends a record of `plain`, of any size.
  void write(ByteVector& out, ByteSpan plain);

 private:
  transport::Seal seal_;
};

class RecordReader {
 public:
  static constexpr std::size_t kLargest = std::size_t{64} * 1024;

  explicit RecordReader(const transport::SealKey& key);
  /// Takes what has come, and appends to `plain` what whole records say. An error if one is not as
  /// it was sent, for ever.
  Status read(ByteSpan bytes, ByteVector& plain);

 private:
  Status take(ByteSpan& left, ByteVector& plain);

  transport::Seal seal_;
  ByteVector buffer_;
  Status broken_;
};

}  // namespace xylem::runtime
