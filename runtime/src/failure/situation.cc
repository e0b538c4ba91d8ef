// SPDX-License-Identifier: Apache-2.0
#include "failure/situation.h"

#include "xylem/base/hash.h"

#include <fmt/format.h>

#include <cstring>
#include <string_view>
#include <type_traits>

namespace xylem::runtime {
namespace {

using collectives::Collective;
using collectives::kNone;

/// Writes plain values to the end of a message.
class Writer {
 public:
  explicit Writer(std::uint8_t kind) { put(kind); }
  template <typename T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof value);
  }
  void put_text(std::string_view text) {
    const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
    bytes_.insert(bytes_.end(), bytes, bytes + text.size());
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

/// Reads plain values from a message. A value whose bytes are missing reads as zero, and ok() is
/// false from then on.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <typename T>
  T get() {
    T value{};
    if (bytes_.size() < sizeof value) {
      ok_ = false;
      return value;
    }
    std::memcpy(&value, bytes_.data(), sizeof value);
    bytes_ = bytes_.subspan(sizeof value);
    return value;
  }
  std::string rest() { return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()}; }
  bool ok() const { return ok_; }

 private:
  std::span<const std::byte> bytes_;
  bool ok_ = true;
};

constexpr std::uint8_t kSituation = 1;
constexpr std::uint8_t kVerdict = 2;
constexpr std::uint8_t kRefusal = 3;
/// A record's byte of flags in a message: this bit, and above it the Agreement.
constexpr std::uint8_t kUneven = 1;
constexpr int kFlagBits = 1;

void put_record(Writer& writer, const CallRecord& record) {
  writer.put(record.sequence);
  writer.put(record.fingerprint);
  writer.put(record.history);
  writer.put(record.count);
  writer.put(record.label);
  writer.put(record.root);
  writer.put(static_cast<std::uint8_t>(record.collective));
  writer.put(static_cast<std::uint8_t>(record.type));
  writer.put(static_cast<std::uint8_t>(record.op));
  writer.put(static_cast<std::uint8_t>((record.uneven ? kUneven : 0) |
                                       static_cast<unsigned>(record.agreement) << kFlagBits));
}

bool get_record(Reader& reader, CallRecord& record) {
  record.sequence = reader.get<std::uint64_t>();
  record.fingerprint = reader.get<std::uint64_t>();
  record.history = reader.get<std::uint64_t>();
  record.count = reader.get<std::uint64_t>();
  record.label = reader.get<std::uint64_t>();
  record.root = reader.get<std::uint32_t>();
  const auto collective = reader.get<std::uint8_t>();
  const auto type = reader.get<std::uint8_t>();
  const auto op = reader.get<std::uint8_t>();
  const auto flags = reader.get<std::uint8_t>();
  record.uneven = (flags & kUneven) != 0;
  const int agreement = flags >> kFlagBits;
  if (collective >= collectives::kCollectiveCount || type >= kDataTypeCount || op >= kRedOpCount ||
      agreement > static_cast<int>(Agreement::on_mesh))
    return false;
  record.agreement = static_cast<Agreement>(agreement);
  record.collective = static_cast<collectives::Collective>(collective);
  record.type = static_cast<DataType>(type);
  record.op = static_cast<RedOp>(op);
  return reader.ok();
}

std::optional<Situation> decode_situation(Reader& reader) {
  Situation situation;
  situation.group = reader.get<std::uint64_t>();
  situation.sequence = reader.get<std::uint64_t>();
  const auto state = reader.get<std::uint8_t>();
  situation.is_question = reader.get<std::uint8_t>() != 0;
  situation.roll_call = reader.get<std::uint32_t>();
  situation.blocked_on = reader.get<std::uint32_t>();
  situation.blocked_bytes = reader.get<std::uint64_t>();
  situation.answers.caller = reader.get<std::uint32_t>();
  situation.answers.number = reader.get<std::uint32_t>();
  const auto count = reader.get<std::uint8_t>();
  if (!reader.ok() || state > static_cast<std::uint8_t>(Situation::State::left) ||
      count > Situation::kMostRecords)
    return std::nullopt;
  situation.state = static_cast<Situation::State>(state);
  situation.records.resize(count);
  for (auto& record : situation.records) {
    if (!get_record(reader, record)) return std::nullopt;
  }
  return situation;
}

std::optional<Verdict> decode_verdict(Reader& reader) {
  Verdict verdict;
  verdict.group = reader.get<std::uint64_t>();
  const auto code = reader.get<std::uint8_t>();
  const auto culprit = reader.get<std::uint32_t>();
  if (!reader.ok() || !is_error_code(code)) return std::nullopt;
  verdict.code = static_cast<Code>(code);
  if (culprit != kNone) verdict.culprit = culprit;
  verdict.message = reader.rest();
  return verdict;
}

std::optional<Refusal> decode_refusal(Reader& reader) {
  Refusal refusal;
  refusal.to = reader.get<std::uint32_t>();
  refusal.is_answer = reader.get<std::uint8_t>() != 0;
  refusal.header = reader.get<MessageHeader>();
  refusal.room = reader.get<std::uint64_t>();
  if (!reader.ok() || refusal.header.type >= kDataTypeCount) return std::nullopt;
  return refusal;
}

std::string_view describe(Agreement agreement) noexcept {
  switch (agreement) {
    case Agreement::none: break;
    case Agreement::on_host: return ", in host memory";
    case Agreement::on_devices: return ", in device memory";
    case Agreement::on_mesh: return ", on a stream";
  }
  return "";
}

}  // namespace

std::string describe(const CallRecord& record) {
  std::string text = fmt::format("{}{}", name(record.collective), record.uneven ? "_v" : "");
  std::string way(describe(record.agreement));
  if (record.label != 0) way += fmt::format(", label {}", record.label);
  if (record.collective == Collective::barrier) return text.append(way);
  if (!record.uneven) text += fmt::format(" of {}", record.count);
  text += fmt::format(" {}", name(record.type));
  if (reduces(record.collective)) text += fmt::format(", {}", name(record.op));
  if (has_root(record.collective)) text += fmt::format(", root {}", record.root);
  return text.append(way);
}

std::uint64_t topic_of(const Situation& situation) noexcept {
  return combine(combine(situation.group, situation.sequence), situation.roll_call == 0 ? 1 : 2);
}

std::uint64_t topic_of(const Verdict& verdict) noexcept { return combine(verdict.group, 3); }

std::vector<std::byte> encode(const Situation& situation) {
  Writer writer(kSituation);
  writer.put(situation.group);
  writer.put(situation.sequence);
  writer.put(static_cast<std::uint8_t>(situation.state));
  writer.put(static_cast<std::uint8_t>(situation.is_question));
  writer.put(situation.roll_call);
  writer.put(situation.blocked_on);
  writer.put(situation.blocked_bytes);
  writer.put(situation.answers.caller);
  writer.put(situation.answers.number);
  writer.put(static_cast<std::uint8_t>(situation.records.size()));
  for (const auto& record : situation.records) put_record(writer, record);
  return writer.take();
}

std::vector<std::byte> encode(const Verdict& verdict) {
  Writer writer(kVerdict);
  writer.put(verdict.group);
  writer.put(static_cast<std::uint8_t>(verdict.code));
  writer.put(verdict.culprit.value_or(kNone));
  writer.put_text(std::string_view(verdict.message).substr(0, 4096));
  return writer.take();
}

std::vector<std::byte> encode(const Refusal& refusal) {
  Writer writer(kRefusal);
  writer.put(refusal.to);
  writer.put(static_cast<std::uint8_t>(refusal.is_answer));
  writer.put(refusal.header);
  writer.put(refusal.room);
  return writer.take();
}

std::variant<std::monostate, Situation, Verdict, Refusal> decode(
    std::span<const std::byte> message) {
  Reader reader(message);
  const auto kind = reader.get<std::uint8_t>();
  if (kind == kSituation) {
    if (auto situation = decode_situation(reader)) return std::move(*situation);
  } else if (kind == kVerdict) {
    if (auto verdict = decode_verdict(reader)) return std::move(*verdict);
  } else if (kind == kRefusal) {
    if (const auto refusal = decode_refusal(reader)) return *refusal;
  }
  return {};
}

}  // namespace xylem::runtime
