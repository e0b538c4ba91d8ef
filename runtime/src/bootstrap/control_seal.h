// SPDX-License-Identifier: Apache-2.0
//
// Records: what a control connection carries after its handshake. Each record is encrypted and
// authenticated, so that a third party can neither read, change, drop nor repeat a record.
//
//   u32 number of bytes | these bytes, encrypted | tag of 16 bytes
#pragma once

#include "bootstrap/handshake.h"
#include "bootstrap/wire_format.h"
#include "xylem/base/status.h"
#include "xylem/transport/seal.h"

#include <cstddef>

namespace xylem::runtime {

class RecordWriter {
 public:
  explicit RecordWriter(const transport::SealKey& key);
  /// Appends `plain`, of any size, as records.
  void write(ByteVector& out, ByteSpan plain);

 private:
  transport::Seal seal_;
};

class RecordReader {
 public:
  static constexpr std::size_t kLargest = std::size_t{64} * 1024;

  explicit RecordReader(const transport::SealKey& key);
  /// Buffers bytes that have arrived, and appends the decrypted content of complete records to
  /// `plain`. Fails if a record is not authentic; all later calls then fail, too.
  Status read(ByteSpan bytes, ByteVector& plain);

 private:
  Status take(ByteSpan& left, ByteVector& plain);

  transport::Seal seal_;
  ByteVector buffer_;
  Status broken_;
};

}  // namespace xylem::runtime
