// SPDX-License-Identifier: Apache-2.0
#include "calls/calls.h"

#include "calls/buffer_checks.h"
#include "xylem/base/hash.h"
#include "xylem/transport/transport.h"

#include <fmt/format.h>

#include <cstdint>
#include <numeric>

namespace xylem::runtime {
namespace {

using collectives::Collective;

/// Which buffers an even collective uses at this rank.
Needs buffers_of(const Caller& caller, Collective collective, std::uint32_t root) {
  const bool at_root = caller.rank == root;
  Needs needs;
  switch (collective) {
    case Collective::barrier: needs.input = needs.output = false; break;
    case Collective::reduce:
    case Collective::gather: needs.output = at_root; break;
    case Collective::broadcast:
    case Collective::scatter: needs.input = at_root; break;
    case Collective::all_reduce:
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::all_to_all: break;
  }
  return needs;
}

/// Sets in `needs` how many elements an even collective needs in each buffer. Returns Call::count.
/// Precondition: the buffers have passed check_buffers().
Result<std::uint64_t> measure_even(const Caller& caller,
                                   Collective collective,
                                   const ConstBuffer& input,
                                   const Buffer& output,
                                   Needs& needs) {
  switch (collective) {
    case Collective::barrier: break;
    case Collective::all_reduce:
    case Collective::reduce: return needs.input_count = needs.output_count = input.count;
    case Collective::broadcast: return needs.input_count = needs.output_count = output.count;
    case Collective::all_gather:
    case Collective::gather: {
      XYLEM_TRY(needs.output_count, whole_of(collective, input.count, input.type, caller.size));
      needs.in_place_offset = caller.rank * input.count;
      return needs.input_count = input.count;
    }
    case Collective::reduce_scatter:
    case Collective::scatter: {
      XYLEM_TRY(needs.input_count, whole_of(collective, output.count, output.type, caller.size));
      needs.in_place_offset = caller.rank * output.count;
      return needs.output_count = output.count;
    }
    case Collective::all_to_all:
      needs.input_count = needs.output_count = input.count;
      return share_of(collective, input.count, caller.size);
  }
  return 0;
}

}  // namespace

Result<Call> even_call(const Caller& caller, EvenArguments arguments) {
  auto& [collective, input, output, op, root, label] = arguments;
  XYLEM_TRY(check_rank("root", root, caller));
  find_memory(caller, input, output);
  Call call;
  call.collective = collective;
  call.root = root;
  call.label = label;
  Needs needs = buffers_of(caller, collective, root);
  XYLEM_TRY(check_buffers(needs, input, output, caller));
  XYLEM_TRY(call.count, measure_even(caller, collective, input, output, needs));
  XYLEM_TRY(check_pair(collective, needs, input, output));
  if (collective == Collective::barrier) return call;
  call.type = needs.input ? input.type : output.type;
  if (reduces(collective)) {
    XYLEM_TRY(check_reduction(op.op, call.type));
    call.op = op;
  }
  call.memory = needs.input ? input.memory : output.memory;
  call.input = needs.input ? input.data : nullptr;
  call.output = needs.output ? output.data : nullptr;
  return call;
}

void set_even(Call& call, const CallRecord& record, const EvenArguments& arguments) noexcept {
  call.collective = record.collective;
  call.type = record.type;
  call.op = arguments.op;
  call.root = record.root;
  call.count = record.count;
  call.agreement = record.agreement;
  call.input = arguments.input.data;
  call.output = arguments.output.data;
  call.label = arguments.label;
}

KnownArguments::KnownArguments(const Caller& caller, const Call& call)
    : collective_(call.collective), type_(call.type), op_(call.op.op), root_(call.root) {
  const Needs needs = buffers_of(caller, call.collective, call.root);
  has_input_ = needs.input;
  has_output_ = needs.output;
  const bool gathers =
      call.collective == Collective::all_gather || call.collective == Collective::gather;
  const bool scatters =
      call.collective == Collective::reduce_scatter || call.collective == Collective::scatter;
  const bool exchanges = call.collective == Collective::all_to_all;
  const std::uint64_t whole = call.count * caller.size;
  input_count_ = scatters || exchanges ? whole : call.count;
  output_count_ = gathers || exchanges ? whole : call.count;
  input_bytes_ = input_count_ * size_of(type_);
  output_bytes_ = output_count_ * size_of(type_);
  in_place_offset_ = gathers || scatters ? caller.rank * call.count * size_of(type_) : 0;
}

bool KnownArguments::match(const EvenArguments& arguments) const noexcept {
  const auto& [collective, input, output, op, root, label] = arguments;  // Any label matches.
  const auto is_right = [this](const auto& buffer, std::uint64_t count) {
    return buffer.count == count && buffer.type == type_ && buffer.data != nullptr &&
           buffer.memory.kind == MemoryKind::host;
  };
  if (collective != collective_ || root != root_ || op.op != op_) return false;
  if (has_input_ && !is_right(input, input_count_)) return false;
  if (has_output_ && !is_right(output, output_count_)) return false;
  if (!has_input_ || !has_output_) return true;
  const auto in = reinterpret_cast<std::uintptr_t>(input.data);
  const auto out = reinterpret_cast<std::uintptr_t>(output.data);
  if (in + input_bytes_ <= out || out + output_bytes_ <= in) return true;
  // An all_to_all in place needs a different plan, which copies the input to scratch first.
  if (collective_ == Collective::all_to_all) return false;
  return input_bytes_ <= output_bytes_ ? in == out + in_place_offset_
                                       : out == in + in_place_offset_;
}

Result<Call> uneven_call(const Caller& caller,
                         Collective collective,
                         ConstBuffer input,
                         Buffer output,
                         std::span<const std::uint64_t> counts,
                         ReduceOp op) {
  XYLEM_TRY(check_counts("counts", counts, caller));
  find_memory(caller, input, output);
  const bool gathers = collective == Collective::all_gather;
  Needs needs;
  XYLEM_TRY(check_buffers(needs, input, output, caller));
  XYLEM_TRY(const auto whole, sum_of("counts", counts, gathers ? output.type : input.type));
  const std::uint64_t own = counts[caller.rank];
  needs.input_count = gathers ? own : whole;
  needs.output_count = gathers ? whole : own;
  const auto before = counts.first(caller.rank);
  needs.in_place_offset = std::accumulate(before.begin(), before.end(), std::uint64_t{0});
  XYLEM_TRY(check_pair(collective, needs, input, output));
  if (!gathers) XYLEM_TRY(check_reduction(op.op, input.type));
  Call call;
  call.collective = collective;
  call.type = input.type;
  if (!gathers) call.op = op;
  (gathers ? call.output_counts : call.input_counts).assign(counts.begin(), counts.end());
  call.memory = input.memory;
  call.input = input.data;
  call.output = output.data;
  return call;
}

Result<Call> all_to_all_v_call(const Caller& caller,
                               ConstBuffer input,
                               std::span<const std::uint64_t> send_counts,
                               Buffer output,
                               std::span<const std::uint64_t> recv_counts) {
  XYLEM_TRY(check_counts("send_counts", send_counts, caller));
  XYLEM_TRY(check_counts("recv_counts", recv_counts, caller));
  find_memory(caller, input, output);
  Needs needs;
  XYLEM_TRY(check_buffers(needs, input, output, caller));
  XYLEM_TRY(needs.input_count, sum_of("send_counts", send_counts, input.type));
  XYLEM_TRY(needs.output_count, sum_of("recv_counts", recv_counts, output.type));
  if (send_counts[caller.rank] != recv_counts[caller.rank]) {
    return bad(fmt::format("all_to_all_v: rank {} sends itself {} elements and receives {}",
                           caller.rank, send_counts[caller.rank], recv_counts[caller.rank]));
  }
  needs.may_be_in_place = false;
  XYLEM_TRY(check_pair(Collective::all_to_all, needs, input, output));
  Call call;
  call.collective = Collective::all_to_all;
  call.type = input.type;
  call.input_counts.assign(send_counts.begin(), send_counts.end());
  call.output_counts.assign(recv_counts.begin(), recv_counts.end());
  call.memory = input.memory;
  call.input = input.data;
  call.output = output.data;
  return call;
}

Status check_send(const Caller& caller, const ConstBuffer& buffer, std::uint32_t to) {
  if (is_plain(buffer) && to < caller.size) return {};
  XYLEM_TRY(check_buffer("buffer", buffer, caller));
  XYLEM_TRY(check_rank("destination", to, caller));
  if (buffer.count <= transport::kLargestMessage / size_of(buffer.type)) return {};
  return bad(
      fmt::format("buffer: {} elements of {} are more than a message of 1 TiB holds; "
                  "send them in parts",
                  buffer.count, name(buffer.type)));
}

Status check_recv(const Caller& caller, const Buffer& buffer, std::optional<std::uint32_t> from) {
  if (is_plain(buffer) && (!from || *from < caller.size)) return {};
  XYLEM_TRY(check_buffer("buffer", buffer, caller));
  if (from) return check_rank("source", *from, caller);
  return {};
}

void set_send(Call& call, const ConstBuffer& buffer, std::uint32_t to, std::uint32_t tag) noexcept {
  call.kind = CallKind::send;
  call.type = buffer.type;
  call.count = buffer.count;
  call.peer = to;
  call.tag = tag;
  call.memory = buffer.memory;
  call.input = buffer.data;
}

void set_recv(Call& call,
              const Buffer& buffer,
              std::optional<std::uint32_t> from,
              std::uint32_t tag) noexcept {
  call.kind = CallKind::recv;
  call.type = buffer.type;
  call.count = buffer.count;
  call.peer = from.value_or(collectives::kNone);
  call.tag = tag;
  call.memory = buffer.memory;
  call.output = buffer.data;
}

Result<Call> send_call(const Caller& caller,
                       ConstBuffer buffer,
                       std::uint32_t to,
                       std::uint32_t tag) {
  find_memory(caller, buffer);
  XYLEM_TRY(check_send(caller, buffer, to));
  Call call;
  set_send(call, buffer, to, tag);
  return call;
}

Result<Call> recv_call(const Caller& caller,
                       Buffer buffer,
                       std::optional<std::uint32_t> from,
                       std::uint32_t tag) {
  find_memory(caller, buffer);
  XYLEM_TRY(check_recv(caller, buffer, from));
  Call call;
  set_recv(call, buffer, from, tag);
  return call;
}

namespace {

/// True if `device` can access `buffer`, which is in `memory`, or if `buffer` is null.
bool reaches(const Memory& device,
             const ComputeDevices& devices,
             const Memory& memory,
             const void* buffer) {
  if (buffer == nullptr || memory == device) return true;
  return memory.kind == MemoryKind::host && devices.find(buffer).is_pinned;
}

}  // namespace

Status put_on_stream(Call& call, const Caller& caller, const Stream& stream, bool holds_stream) {
  if (stream.device.kind == MemoryKind::host || stream.device.kind == MemoryKind::unknown) {
    return bad(
        fmt::format("the device of the stream is {}; name the device to which the stream "
                    "belongs, such as {{MemoryKind::cuda, 0}}",
                    stream.device.kind == MemoryKind::host ? "the host" : "not stated"));
  }
  if (caller.devices == nullptr) {
    return failure(Code::unsupported, "this job has no devices, and so no streams");
  }
  XYLEM_TRY([[maybe_unused]] auto* const device, caller.devices->of(stream.device));
  for (const void* const buffer : {call.input, static_cast<const void*>(call.output)}) {
    if (reaches(stream.device, *caller.devices, call.memory, buffer)) continue;
    return bad(
        fmt::format("a buffer is in {}, and the stream belongs to {} device {}; a call on a "
                    "stream takes buffers in the memory of its device or in pinned memory",
                    describe(call.memory), name(stream.device.kind), stream.device.device));
  }
  call.memory = stream.device;
  call.stream = stream;
  call.holds_stream = holds_stream;
  return {};
}

namespace {

std::uint64_t fingerprint_of(const Call& call) noexcept {
  constexpr int kByte = 8;
  std::uint64_t hash = call.root;
  // In an all_to_all_v, a rank without data does not know in which memory the others have theirs.
  const bool is_unknown = call.has_private_counts() && !call.is_on_mesh();
  const auto agreement = is_unknown ? Agreement::none : call.agreement;
  for (const auto part :
       {static_cast<std::uint64_t>(call.collective),
        std::uint64_t{call.is_uneven()} | static_cast<std::uint64_t>(agreement) << 1,
        static_cast<std::uint64_t>(call.type), static_cast<std::uint64_t>(call.op.op)}) {
    hash = hash << kByte | part;
  }
  if (!call.is_uneven()) return combine(hash, call.count);
  // The counts of an all_to_all_v differ from rank to rank, so the fingerprint does not contain
  // them.
  if (call.has_private_counts()) return hash;
  const auto& counts = call.input_counts.empty() ? call.output_counts : call.input_counts;
  for (const std::uint64_t count : counts) hash = combine(hash, count);
  return hash;
}

}  // namespace

CallRecord record_of(const Call& call) noexcept {
  CallRecord record;
  record.fingerprint = fingerprint_of(call);
  record.collective = call.collective;
  record.type = call.type;
  record.op = call.op.op;
  record.root = call.root;
  record.count = call.count;
  record.uneven = call.is_uneven();
  record.agreement = call.agreement;
  return record;
}

}  // namespace xylem::runtime
