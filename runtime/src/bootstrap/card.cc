// SPDX-License-Identifier: Apache-2.0
//
// Encoding and decoding of cards.
#include "bootstrap/card.h"

namespace xylem::runtime {

ByteVector Card::write() const {
  ByteVector bytes;
  WireWriter writer(bytes);
  // In every version of the format, protocol and library come first, so that an error message can
  // name the version of any card.
  writer.number(dialect.protocol).text(dialect.library);
  writer.text(address.host()).number(address.port());
  host.write(writer);
  return bytes;
}

Result<Card> Card::read(ByteSpan bytes) {
  WireReader reader(bytes);
  Card card;
  const std::uint32_t spoken = card.dialect.protocol;
  card.dialect.protocol = reader.number<std::uint32_t>();
  card.dialect.library = reader.text();
  const std::string host(reader.text());
  const auto port = reader.number<std::uint16_t>();
  if (reader.ok() && card.dialect.protocol != spoken) {
    reader.rest();
  } else {
    card.host = HostIdentity::read(reader);
  }
  if (!reader.finished()) return failure(Code::internal, "it is not a rank's card");
  XYLEM_TRY(card.address, SocketAddress::parse(host, port));
  return card;
}

}  // namespace xylem::runtime
