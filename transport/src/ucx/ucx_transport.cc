// SPDX-License-Identifier: Apache-2.0
//
// Posting, completion and progress over a UCP worker.
#include "ucx/ucx_transport.h"

#include "ucx/address.h"
#include "ucx/lanes.h"
#include "ucx/reach.h"
#include "ucx/status.h"
#include "xylem/base/check.h"
#include "xylem/base/clock.h"

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string_view>
#include <utility>

namespace xylem::transport::ucx {
namespace {

constexpr std::chrono::seconds kEndingPatience{1};

ucs_memory_type_t memory_type(Memory memory) noexcept {
  switch (memory.kind) {
    case MemoryKind::host: return UCS_MEMORY_TYPE_HOST;
    case MemoryKind::cuda: return UCS_MEMORY_TYPE_CUDA;
    case MemoryKind::cuda_managed: return UCS_MEMORY_TYPE_CUDA_MANAGED;
    case MemoryKind::rocm: return UCS_MEMORY_TYPE_ROCM;
  }
  return UCS_MEMORY_TYPE_UNKNOWN;
}

// A send that UCX cancels is one whose endpoint was cut.
Code send_code(ucs_status_t status) noexcept {
  return status == UCS_ERR_CANCELED ? Code::peer_lost : code_of(status);
}

// Only cancel() cancels a receive; otherwise the endpoint of the message that it had met is gone.
Code receive_code(ucs_status_t status, bool asked) noexcept {
  return status == UCS_ERR_CANCELED && !asked ? Code::peer_lost : code_of(status);
}

}  // namespace

UcxTransport::UcxTransport(Context context, Worker worker, UcxReach reach, bool cuda, Logger logger)
    : context_(std::move(context)),
      worker_(std::move(worker)),
      reach_(reach),
      cuda_(cuda),
      logger_(std::move(logger)) {
  pending_receives_.next = &pending_receives_;
  pending_receives_.previous = &pending_receives_;
}

Result<std::unique_ptr<Transport>> UcxTransport::create(
    Context context, Worker worker, UcxReach reach, bool cuda, Logger logger) {
  std::unique_ptr<UcxTransport> transport(
      new UcxTransport(std::move(context), std::move(worker), reach, cuda, std::move(logger)));
  XYLEM_TRY(transport->open());
  return std::unique_ptr<Transport>(std::move(transport));
}

Status UcxTransport::open() {
  ucs_status_t status = ucp_worker_get_efd(worker_.get(), &wake_fd_);
  if (status != UCS_OK) return refusal(status, "give a descriptor to sleep on");

  ucp_address_t* address = nullptr;
  std::size_t length = 0;
  status = ucp_worker_get_address(worker_.get(), &address, &length);
  if (status != UCS_OK) return refusal(status, "give its worker's address");
  address_ = wrap_address(reach_, {reinterpret_cast<const std::byte*>(address), length});
  ucp_worker_release_address(worker_.get(), address);
  return {};
}

UcxTransport::~UcxTransport() {
  ending_ = true;
  for (EndpointId endpoint = 0; endpoint < endpoints_.size(); ++endpoint) close(endpoint);
  while (pending_receives_.next != &pending_receives_) {
    ReceiveSlot* slot = pending_receives_.next;
    unlink(*slot);
    slot->cancelled = true;
    ucp_request_cancel(worker_.get(), slot);
  }
  discard(0, 0);  // UCX warns of every message that a worker still holds
  const auto deadline = Deadline::after(kEndingPatience);
  while (!idle() && !deadline.passed()) ucp_worker_progress(worker_.get());
  if (!idle()) {
    logger_.error(
        fmt::format("ucx transport ends with work in flight: sends {} receives {} "
                    "discards {} closings {}",
                    sends_, receives_, discards_, closings_));
  }
}

Result<EndpointId> UcxTransport::connect(std::span<const std::byte> address) {
  XYLEM_TRY(const auto worker_address, unwrap_address(reach_, address));
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
  const ucs_status_t status = ucp_ep_create(worker_.get(), &params, &endpoint->handle);
  if (status != UCS_OK) {
    return refusal(status, fmt::format("connect to a peer by reach {}", ucx::name(reach_)),
                   "`xylem info` lists the wires of each side");
  }
  endpoints_.push_back(std::move(endpoint));
  return endpoints_.back()->id;
}

// Completions come from UCX's progress, but may also come while something else is posted; those
// wait.
void UcxTransport::tell(Operation& operation) {
  if (ending_) return;
  if (posting_) {
    deferred_.push_back(&operation);
  } else {
    operation.done(operation);
  }
}

unsigned UcxTransport::tell_deferred() {
  telling_.swap(deferred_);
  for (Operation* operation : telling_) operation->done(*operation);
  const auto count = static_cast<unsigned>(telling_.size());
  telling_.clear();
  return count;
}

Posted UcxTransport::send(EndpointId to,
                          Tag tag,
                          ConstRegion source,
                          Operation& operation) noexcept {
  XYLEM_CHECK(to < endpoints_.size(), to, endpoints_.size());
  Endpoint& endpoint = *endpoints_[to];
  endpoint.bytes_sent += source.bytes;
  if (endpoint.lost != Code::ok) [[unlikely]] {
    operation.code = endpoint.lost;
    return Posted::done;
  }
  ucp_request_param_t params;
  params.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  params.cb.send = on_sent;
  params.user_data = &operation;
  params.memory_type = memory_type(source.memory);
  operation.state = this;

  const bool outer = std::exchange(posting_, true);
  const ucs_status_ptr_t request =
      ucp_tag_send_nbx(endpoint.handle, source.data, source.bytes, tag, &params);
  posting_ = outer;
  if (UCS_PTR_IS_PTR(request)) {
    ++sends_;
    return Posted::pending;
  }
  operation.code = send_code(UCS_PTR_STATUS(request));
  return Posted::done;
}

void UcxTransport::on_sent(void* request, ucs_status_t status, void* user_data) noexcept {
  auto& operation = *static_cast<Operation*>(user_data);
  auto& self = *static_cast<UcxTransport*>(operation.state);
  ucp_request_free(request);
  --self.sends_;
  operation.code = send_code(status);
  self.tell(operation);
}

void init_request(void* request) noexcept { static_cast<ReceiveSlot*>(request)->owner = nullptr; }

// UCX 1.13 calls back within ucp_tag_recv_nbx() when the message is there already, for some kinds
// of messages whether asked to or not; for the others it would not say what it received. So it is
// asked to, always, and such a callback leaves its result in the operation: `state` is this
// transport before it, and null after.
Posted UcxTransport::recv(
    Tag tag, Tag mask, Region target, Operation& operation, Tag* sender_tag) noexcept {
  ucp_request_param_t params;
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  params.cb.recv = on_received;
  params.user_data = &operation;
  params.memory_type = memory_type(target.memory);
  operation.state = this;

  const bool outer = std::exchange(posting_, true);
  const ucs_status_ptr_t request =
      ucp_tag_recv_nbx(worker_.get(), target.data, target.bytes, tag, mask, &params);
  posting_ = outer;
  if (!UCS_PTR_IS_PTR(request)) {
    operation.code = receive_code(UCS_PTR_STATUS(request), false);
    operation.bytes = 0;
    return Posted::done;
  }
  if (operation.state == nullptr) {
    if (sender_tag != nullptr) *sender_tag = arrived_tag_;
    return Posted::done;
  }
  auto& slot = *static_cast<ReceiveSlot*>(request);
  slot.owner = this;
  slot.sender_tag = sender_tag;
  slot.cancelled = false;
  link(slot);
  operation.state = &slot;
  return Posted::pending;
}

void UcxTransport::on_received(void* request,
                               ucs_status_t status,
                               const ucp_tag_recv_info_t* info,
                               void* user_data) noexcept {
  auto& operation = *static_cast<Operation*>(user_data);
  auto& slot = *static_cast<ReceiveSlot*>(request);
  const bool pending = slot.owner != nullptr;
  UcxTransport& self = pending ? *slot.owner : *static_cast<UcxTransport*>(operation.state);
  operation.code = receive_code(status, pending && slot.cancelled);
  operation.bytes = status == UCS_OK ? info->length : 0;
  operation.state = nullptr;
  if (pending) {
    if (slot.sender_tag != nullptr && status == UCS_OK) *slot.sender_tag = info->sender_tag;
    self.unlink(slot);
    slot.owner = nullptr;
  } else {
    self.arrived_tag_ = info->sender_tag;
  }
  ucp_request_free(request);
  if (pending) self.tell(operation);
}

void UcxTransport::link(ReceiveSlot& slot) noexcept {
  slot.next = &pending_receives_;
  slot.previous = pending_receives_.previous;
  slot.previous->next = &slot;
  pending_receives_.previous = &slot;
  ++receives_;
}

void UcxTransport::unlink(ReceiveSlot& slot) noexcept {
  slot.previous->next = slot.next;
  slot.next->previous = slot.previous;
  --receives_;
}

// A receive that has met its message is no longer UCX's to cancel: it ends with the bytes, or with
// the endpoint.
void UcxTransport::cancel(Operation& operation) noexcept {
  auto* slot = static_cast<ReceiveSlot*>(operation.state);
  if (slot == nullptr) return;
  slot->cancelled = true;
  ucp_request_cancel(worker_.get(), slot);
}

// A dropped message is received into no bytes. UCX then answers a sender that waits for its
// rendezvous at once, as it does for any message that is too long, so dropping a message of any
// size takes no memory and moves none of it.
std::size_t UcxTransport::discard(Tag tag, Tag mask) noexcept {
  std::size_t count = 0;
  ucp_tag_recv_info_t info;
  while (ucp_tag_message_h message =
             ucp_tag_probe_nb(worker_.get(), tag, mask, /*remove=*/1, &info)) {
    ucp_request_param_t params;
    params.op_attr_mask =
        UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    params.cb.recv = on_discarded;
    params.user_data = this;
    params.memory_type = UCS_MEMORY_TYPE_HOST;
    ++discards_;
    const ucs_status_ptr_t request =
        ucp_tag_msg_recv_nbx(worker_.get(), nullptr, 0, message, &params);
    if (!UCS_PTR_IS_PTR(request)) --discards_;
    ++count;
  }
  return count;
}

void UcxTransport::on_discarded(void* request,
                                ucs_status_t /*status*/,
                                const ucp_tag_recv_info_t* /*info*/,
                                void* user_data) noexcept {
  ucp_request_free(request);
  --static_cast<UcxTransport*>(user_data)->discards_;
}

unsigned UcxTransport::progress() noexcept {
  unsigned count = ucp_worker_progress(worker_.get());
  if (!deferred_.empty()) [[unlikely]]
    count += tell_deferred();
  return count;
}

Result<bool> UcxTransport::arm() noexcept {
  if (!deferred_.empty()) return false;
  const ucs_status_t status = ucp_worker_arm(worker_.get());
  if (status == UCS_OK) return true;
  if (status == UCS_ERR_BUSY) return false;
  return refusal(status, "prepare its worker for sleep");
}

void UcxTransport::on_failed(void* endpoint, ucp_ep_h /*handle*/, ucs_status_t status) noexcept {
  auto& failed = *static_cast<Endpoint*>(endpoint);
  failed.lost = send_code(status);
  if (failed.owner->logger_.enabled(LogLevel::info)) {
    failed.owner->logger_.info(fmt::format("ucx endpoint {} reach {} failed: {}", failed.id,
                                           ucx::name(failed.owner->reach_),
                                           ucs_status_string(status)));
  }
}

void UcxTransport::close(EndpointId id) noexcept {
  XYLEM_CHECK(id < endpoints_.size(), id, endpoints_.size());
  Endpoint& endpoint = *endpoints_[id];
  if (endpoint.handle == nullptr) return;
  endpoint.lost = Code::peer_lost;
  ucp_request_param_t params;
  params.op_attr_mask =
      UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.flags = UCP_EP_CLOSE_FLAG_FORCE;
  params.cb.send = on_closed;
  params.user_data = this;
  const ucs_status_ptr_t request =
      ucp_ep_close_nbx(std::exchange(endpoint.handle, nullptr), &params);
  if (UCS_PTR_IS_PTR(request)) ++closings_;
}

void UcxTransport::on_closed(void* request, ucs_status_t /*status*/, void* user_data) noexcept {
  ucp_request_free(request);
  --static_cast<UcxTransport*>(user_data)->closings_;
}

std::vector<Lane> UcxTransport::lanes(EndpointId id) const {
  XYLEM_CHECK(id < endpoints_.size(), id, endpoints_.size());
  const Endpoint& endpoint = *endpoints_[id];
  if (endpoint.handle == nullptr) return {};
  char* text = nullptr;
  std::size_t length = 0;
  std::FILE* stream = ::open_memstream(&text, &length);
  if (stream == nullptr) return {};
  ucp_ep_print_info(endpoint.handle, stream);
  std::fclose(stream);
  auto lanes = parse_lanes({text, length});
  std::free(text);
  return lanes;
}

std::uint64_t UcxTransport::bytes_sent(EndpointId id) const noexcept {
  XYLEM_CHECK(id < endpoints_.size(), id, endpoints_.size());
  return endpoints_[id]->bytes_sent;
}

}  // namespace xylem::transport::ucx
