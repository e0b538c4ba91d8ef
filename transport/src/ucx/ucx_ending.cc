// SPDX-License-Identifier: Apache-2.0
//
// How endpoints and the worker end: death of a peer, close(), cancel(), and the destructor.
#include "ucx/reach.h"
#include "ucx/status.h"
#include "ucx/ucx_transport.h"
#include "xylem/base/check.h"

#include <fmt/format.h>

#include <utility>

namespace xylem::transport::ucx {
namespace {

constexpr std::chrono::milliseconds kCloseTimeout{250};
constexpr std::chrono::milliseconds kStuckTimeout{250};
constexpr int kLastLooks = 1000;

}  // namespace

// UCX's error handler for an endpoint. UCX calls it after it has disconnected the endpoint's lanes.
void UcxTransport::on_failed(void* endpoint, ucp_ep_h /*handle*/, ucs_status_t status) noexcept {
  auto& failed = *static_cast<Endpoint*>(endpoint);
  UcxTransport& self = *failed.owner;
  failed.lost = send_code(status);
  ++self.epoch_;
  self.end_sends(failed);
  if (self.logger_.enabled(LogLevel::info)) {
    self.logger_.info(fmt::format("ucx endpoint {} reach {} failed: {}", failed.id,
                                  ucx::name(self.facts_.reach), api().ucs_status_string(status)));
  }
}

void UcxTransport::close(EndpointId id) noexcept {
  XYLEM_CHECK(id < endpoints_.size(), id, endpoints_.size());
  Endpoint& endpoint = *endpoints_[id];
  if (endpoint.handle == nullptr) return;
  if (endpoint.lost == Code::ok) endpoint.lost = Code::peer_lost;
  ++epoch_;
  cut(endpoint);
}

// Begins to flush an endpoint. True if all its sends have left already. Otherwise, flushes_ counts
// the flush until on_flushed() is called.
bool UcxTransport::begin_flush(Endpoint& endpoint) {
  ucp_request_param_t params;
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.send = on_flushed;
  params.user_data = &endpoint;
  const bool waits = UCS_PTR_IS_PTR(api().ucp_ep_flush_nbx(endpoint.handle, &params));
  flushes_ += waits ? 1 : 0;
  return !waits;
}

void UcxTransport::on_flushed(void* request, ucs_status_t /*status*/, void* user_data) noexcept {
  api().ucp_request_free(request);
  auto& endpoint = *static_cast<Endpoint*>(user_data);
  endpoint.flushed = endpoint.flushing;
  --endpoint.owner->flushes_;
}

void UcxTransport::cut(Endpoint& endpoint) {
  ucp_request_param_t params;
  params.op_attr_mask =
      UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.flags = UCP_EP_CLOSE_FLAG_FORCE;
  params.cb.send = on_closed;
  params.user_data = this;
  const ucs_status_ptr_t request =
      api().ucp_ep_close_nbx(std::exchange(endpoint.handle, nullptr), &params);
  if (UCS_PTR_IS_PTR(request)) ++closings_;
  end_sends(endpoint);
}

void UcxTransport::on_closed(void* request, ucs_status_t /*status*/, void* user_data) noexcept {
  api().ucp_request_free(request);
  --static_cast<UcxTransport*>(user_data)->closings_;
}

// Separates a request from its operation, which has completed. The request stays in detached_ until
// UCX has finished with it.
void UcxTransport::detach(RequestState& state) noexcept {
  RequestRing::remove(state);
  state.operation = nullptr;
  detached_.push_back(state);
}

void UcxTransport::end_all(RequestRing& ring, Code code) {
  while (!ring.empty()) {
    RequestState& state = ring.front();
    XYLEM_CHECK(state.operation != nullptr);  // requests without an operation are in detached_
    Operation& operation = *state.operation;
    operation.code = state.cancelled ? Code::cancelled : code;
    operation.bytes = 0;
    operation.state = nullptr;
    completions_.defer(operation);
    detach(state);
  }
}

// Ends the sends of an endpoint whose lanes are disconnected. If UCX reads the buffer of a send
// only during calls of UCX (ContextFacts::buffered), a disconnected lane never reads the buffer
// again, so the sends end at once. With RDMA, a NIC may still read the buffer, and UCX completes
// the send when the NIC has stopped.
void UcxTransport::end_sends(Endpoint& endpoint) {
  if (facts_.buffered) end_all(endpoint.sends, endpoint.lost);
}

// UCX cancels only a receive that no message has matched. Any other receive ends when its message
// is complete, or when the endpoint to the sender ends. A send ends when its message is complete,
// or when its endpoint ends.
void UcxTransport::cancel(Operation& operation) noexcept {
  auto* state = static_cast<RequestState*>(operation.state);
  if (state == nullptr || state->cancelled) return;  // A send has no `state`.
  state->cancelled = true;
  if (arriving_ == 0) patience_.reset();  // it was set for receives that have ended
  ++arriving_;  // on_received() decrements it, within ucp_request_cancel() if UCX cancels
  api().ucp_request_cancel(worker_.get(), state);
}

// A cancelled receive that was posted before an endpoint ended may have matched a message from this
// endpoint. The rest of the message never arrives, and UCX ends the receive either at once or
// never. A receive that was posted later waits for a peer that is alive.
bool UcxTransport::stuck() const {
  return receives_.any_of(
      [this](const RequestState& state) { return state.cancelled && state.epoch != epoch_; });
}

void UcxTransport::break_when_stuck() {
  if (!stuck()) {
    patience_.reset();
    return;
  }
  if (!patience_) patience_ = Deadline::after(kStuckTimeout);
  if (!patience_->passed()) return;
  patience_.reset();
  logger_.warn(
      fmt::format("ucx transport of reach {} ends its worker: receives {} wait for bytes "
                  "of a peer that is gone",
                  ucx::name(facts_.reach), arriving_));
  end_worker();
}

// Destroys the worker: UCX then never accesses the memory of operations again. All pending
// operations end, and new ones fail.
void UcxTransport::end_worker() {
  for (const auto& endpoint : endpoints_) {
    if (endpoint->lost == Code::ok) endpoint->lost = Code::link_lost;
    end_all(endpoint->sends, endpoint->lost);
  }
  end_all(receives_, Code::link_lost);
  // UCX aborts if the worker is destroyed while an endpoint has a rendezvous in progress.
  for (const auto& endpoint : endpoints_) {
    if (endpoint->handle != nullptr) cut(*endpoint);
  }
  worker_.reset();
  detached_.forget();
  wake_.reset();  // a broken transport has no events
  arriving_ = flushes_ = 0;
}

bool UcxTransport::idle() const noexcept {
  return detached_.empty() && discards_ == 0 && closings_ == 0 && flushes_ == 0;
}

UcxTransport::~UcxTransport() {
  if (!worker_) return;
  const auto deadline = Deadline::after(kCloseTimeout);
  for (const auto& endpoint : endpoints_) {
    while (!endpoint->sends.empty()) detach(endpoint->sends.front());
  }
  while (!receives_.empty()) {
    RequestState& state = receives_.front();
    detach(state);
    api().ucp_request_cancel(worker_.get(), &state);
  }
  // If a socket with unread data is closed, TCP discards its unsent data. So all data is read
  // first.
  for (int i = 0; i < kLastLooks && api().ucp_worker_progress(worker_.get()) > 0; ++i) {
  }
  for (const auto& endpoint : endpoints_) {
    if (endpoint->handle != nullptr) cut(*endpoint);
  }
  discard(0, 0);  // UCX logs a warning for each message that a destroyed worker still holds
  while (!idle() && !deadline.passed()) api().ucp_worker_progress(worker_.get());
  worker_.reset();  // runs callbacks, which use members that are destroyed after this
}

}  // namespace xylem::transport::ucx
