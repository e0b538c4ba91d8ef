// SPDX-License-Identifier: Apache-2.0
//
// Posting, completion and progress on a UCP worker.
#include "ucx/ucx_transport.h"

#include "ucx/address.h"
#include "ucx/lanes.h"
#include "ucx/reach.h"
#include "ucx/status.h"
#include "xylem/base/check.h"

#include <fmt/format.h>

#include <fcntl.h>

#include <cstdio>
#include <cstdlib>
#include <span>
#include <utility>

namespace xylem::transport::ucx {
namespace {

/// Passes the kind of the memory to UCX. An unknown kind is not passed, since the number of
/// UCS_MEMORY_TYPE_UNKNOWN differs between versions of UCX; UCX then detects the kind.
void set_memory_type(ucp_request_param_t& params, Memory memory) noexcept {
  switch (memory.kind) {
    case MemoryKind::host: params.memory_type = UCS_MEMORY_TYPE_HOST; break;
    case MemoryKind::cuda: params.memory_type = UCS_MEMORY_TYPE_CUDA; break;
    case MemoryKind::cuda_managed: params.memory_type = UCS_MEMORY_TYPE_CUDA_MANAGED; break;
    case MemoryKind::rocm: params.memory_type = UCS_MEMORY_TYPE_ROCM; break;
    case MemoryKind::unknown: return;
  }
  params.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMORY_TYPE;
}

}  // namespace

void init_request(void* request) noexcept { ::new (request) RequestState; }

UcxTransport::UcxTransport(Context context, Worker worker, const ContextFacts& facts, Logger logger)
    : context_(std::move(context)),
      worker_(std::move(worker)),
      facts_(facts),
      logger_(std::move(logger)) {}

Result<std::unique_ptr<Transport>> UcxTransport::create(Context context,
                                                        Worker worker,
                                                        const ContextFacts& facts,
                                                        Logger logger) {
  std::unique_ptr<UcxTransport> transport(
      new UcxTransport(std::move(context), std::move(worker), facts, std::move(logger)));
  XYLEM_TRY(transport->open());
  return std::unique_ptr<Transport>(std::move(transport));
}

Status UcxTransport::open() {
  int events = -1;
  ucs_status_t status = api().ucp_worker_get_efd(worker_.get(), &events);
  if (status != UCS_OK) return refusal(status, "give a descriptor to sleep on");
  wake_.reset(::fcntl(events, F_DUPFD_CLOEXEC, 0));
  if (!wake_) return failure(Code::exhausted, "no descriptor is left to sleep on: raise ulimit -n");

  ucp_address_t* address = nullptr;
  std::size_t length = 0;
  status = api().ucp_worker_get_address(worker_.get(), &address, &length);
  if (status != UCS_OK) return refusal(status, "give its worker's address");
  address_ = wrap_address(facts_.reach, {reinterpret_cast<const std::byte*>(address), length});
  api().ucp_worker_release_address(worker_.get(), address);
  return {};
}

Result<EndpointId> UcxTransport::connect(std::span<const std::byte> address) {
  XYLEM_TRY(const auto worker_address, unwrap_address(facts_.reach, address));
  if (!worker_) {
    return failure(Code::link_lost,
                   "this transport ended with the death of a peer: make a new one");
  }
  auto endpoint = std::make_unique<Endpoint>();
  endpoint->owner = this;
  endpoint->id = static_cast<EndpointId>(endpoints_.size());

  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(worker_address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = on_failed;
  params.err_handler.arg = endpoint.get();
  const ucs_status_t status = api().ucp_ep_create(worker_.get(), &params, &endpoint->handle);
  if (status != UCS_OK) {
    return refusal(status, fmt::format("connect to a peer by reach {}", ucx::name(facts_.reach)),
                   "`xylem info` lists the wires of each side");
  }
  endpoints_.push_back(std::move(endpoint));
  return endpoints_.back()->id;
}

Posted UcxTransport::send(EndpointId to,
                          Tag tag,
                          ConstRegion source,
                          Operation& operation) noexcept {
  XYLEM_CHECK(to < endpoints_.size(), to, endpoints_.size());
  Endpoint& endpoint = *endpoints_[to];
  endpoint.traffic.count(source.bytes);
  ++endpoint.posted;
  if (endpoint.lost != Code::ok) [[unlikely]] {
    operation.code = endpoint.lost;
    return Posted::done;
  }
  ucp_request_param_t params;
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.send = on_sent;
  params.user_data = &endpoint;
  set_memory_type(params, source.memory);

  const Completions::Posting posting(completions_);
  const ucs_status_ptr_t request =
      api().ucp_tag_send_nbx(endpoint.handle, source.data, source.bytes, tag, &params);
  if (!UCS_PTR_IS_PTR(request)) {
    operation.code = send_code(UCS_PTR_STATUS(request));
    return Posted::done;
  }
  auto& state = *static_cast<RequestState*>(request);
  state.operation = &operation;
  state.cancelled = false;
  endpoint.sends.push_back(state);
  operation.state = nullptr;  // so that cancel() ignores this send
  return Posted::pending;
}

void UcxTransport::on_sent(void* request, ucs_status_t status, void* user_data) noexcept {
  auto& state = *static_cast<RequestState*>(request);
  auto& endpoint = *static_cast<Endpoint*>(user_data);
  Operation* operation = state.operation;
  RequestRing::remove(state);
  api().ucp_request_free(request);
  if (operation == nullptr) return;
  operation->code = send_code(status);
  endpoint.owner->completions_.complete(*operation);
}

// If the message has already arrived, UCX can complete the receive within ucp_tag_recv_nbx(). For
// some kinds of messages UCX 1.13 then calls the callback even if none was requested. For the other
// kinds, it reports the length and the tag only to a callback. So a callback is always requested.
// Within recv(), the callback stores its result in the operation. Operation::state points to this
// transport before the callback, and is null after it.
Posted UcxTransport::recv(
    Tag tag, Tag mask, Region target, Operation& operation, Tag* sender_tag) noexcept {
  if (!worker_) [[unlikely]] {
    operation.code = Code::link_lost;
    operation.bytes = 0;
    return Posted::done;
  }
  ucp_request_param_t params;
  params.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  params.cb.recv = on_received;
  params.user_data = &operation;
  set_memory_type(params, target.memory);
  operation.state = this;

  const Completions::Posting posting(completions_);
  const ucs_status_ptr_t request =
      api().ucp_tag_recv_nbx(worker_.get(), target.data, target.bytes, tag, mask, &params);
  if (!UCS_PTR_IS_PTR(request)) {
    operation.code = receive_code(UCS_PTR_STATUS(request), false);
    operation.bytes = 0;
    operation.state = nullptr;
    return Posted::done;
  }
  if (operation.state == nullptr) {
    if (sender_tag != nullptr) *sender_tag = arrived_tag_;
    return Posted::done;
  }
  auto& state = *static_cast<RequestState*>(request);
  state.owner = this;
  state.operation = &operation;
  state.sender_tag = sender_tag;
  state.cancelled = false;
  state.epoch = epoch_;
  receives_.push_back(state);
  operation.state = &state;
  return Posted::pending;
}

void UcxTransport::on_received(void* request,
                               ucs_status_t status,
                               const ucp_tag_recv_info_t* info,
                               void* user_data) noexcept {
  auto& state = *static_cast<RequestState*>(request);
  if (state.owner == nullptr) {  // recv() has not returned yet
    auto& operation = *static_cast<Operation*>(user_data);
    static_cast<UcxTransport*>(operation.state)->arrived_tag_ = info->sender_tag;
    operation.code = receive_code(status, false);
    operation.bytes = status == UCS_OK ? info->length : 0;
    operation.state = nullptr;
    api().ucp_request_free(request);
    return;
  }
  UcxTransport& self = *std::exchange(state.owner, nullptr);
  Operation* operation = state.operation;
  RequestRing::remove(state);
  if (operation != nullptr) {
    self.arriving_ -= state.cancelled ? 1 : 0;
    if (state.sender_tag != nullptr && status == UCS_OK) *state.sender_tag = info->sender_tag;
    operation->code = receive_code(status, state.cancelled);
    operation->bytes = status == UCS_OK ? info->length : 0;
    operation->state = nullptr;
  }
  api().ucp_request_free(request);
  if (operation != nullptr) self.completions_.complete(*operation);
}

// A dropped message is received into a buffer of size zero. As for any message that is too long,
// UCX then answers a rendezvous at once, so dropping a message of any size needs no memory and
// transfers no data.
std::size_t UcxTransport::discard(Tag tag, Tag mask) noexcept {
  if (!worker_) return 0;
  std::size_t count = 0;
  ucp_tag_recv_info_t info;
  while (ucp_tag_message_h message =
             api().ucp_tag_probe_nb(worker_.get(), tag, mask, /*remove=*/1, &info)) {
    ucp_request_param_t params;
    params.op_attr_mask =
        UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    params.cb.recv = on_discarded;
    params.user_data = this;
    params.memory_type = UCS_MEMORY_TYPE_HOST;
    ++discards_;
    const ucs_status_ptr_t request =
        api().ucp_tag_msg_recv_nbx(worker_.get(), nullptr, 0, message, &params);
    if (!UCS_PTR_IS_PTR(request)) --discards_;
    ++count;
  }
  return count;
}

void UcxTransport::on_discarded(void* request,
                                ucs_status_t /*status*/,
                                const ucp_tag_recv_info_t* /*info*/,
                                void* user_data) noexcept {
  api().ucp_request_free(request);
  --static_cast<UcxTransport*>(user_data)->discards_;
}

unsigned UcxTransport::progress() noexcept {
  unsigned count = 0;
  if (worker_) [[likely]] {
    count = api().ucp_worker_progress(worker_.get());
    if (arriving_ > 0) [[unlikely]]
      break_when_stuck();
  }
  if (completions_.has_deferred()) [[unlikely]]
    count += completions_.complete_deferred();
  return count;
}

// A send completes when UCX has copied the message. The copy may still wait inside UCX; a UCX flush
// completes when it has left this process.
bool UcxTransport::flush(EndpointId id) noexcept {
  XYLEM_CHECK(id < endpoints_.size(), id, endpoints_.size());
  Endpoint& endpoint = *endpoints_[id];
  if (endpoint.handle == nullptr || endpoint.lost != Code::ok) return true;
  if (!endpoint.sends.empty()) return false;
  if (endpoint.flushed == endpoint.posted) return true;
  if (endpoint.flushing != endpoint.flushed) return false;
  endpoint.flushing = endpoint.posted;
  const Completions::Posting posting(completions_);
  if (begin_flush(endpoint)) endpoint.flushed = endpoint.flushing;
  return endpoint.flushed == endpoint.posted;
}

// While the transport is stuck(), progress() must check the deadline `patience_`, so the transport
// must not sleep.
Result<bool> UcxTransport::arm() noexcept {
  if (completions_.has_deferred() || (arriving_ > 0 && stuck())) return false;
  if (!worker_) return true;
  const ucs_status_t status = api().ucp_worker_arm(worker_.get());
  if (status == UCS_OK) return true;
  if (status == UCS_ERR_BUSY) return false;
  return refusal(status, "prepare its worker for sleep");
}

std::vector<PhysicalPath> UcxTransport::paths(EndpointId id) const {
  XYLEM_CHECK(id < endpoints_.size(), id, endpoints_.size());
  const Endpoint& endpoint = *endpoints_[id];
  if (endpoint.handle == nullptr) return {};
  char* text = nullptr;
  std::size_t length = 0;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> stream(::open_memstream(&text, &length),
                                                         &std::fclose);
  if (stream == nullptr) return {};
  api().ucp_ep_print_info(endpoint.handle, stream.get());
  stream.reset();  // completes `text`
  const std::unique_ptr<char, void (*)(void*)> owner(text, &std::free);
  return parse_lanes({text, length});
}

Traffic UcxTransport::traffic(EndpointId id) const noexcept {
  XYLEM_CHECK(id < endpoints_.size(), id, endpoints_.size());
  return endpoints_[id]->traffic;
}

}  // namespace xylem::transport::ucx
