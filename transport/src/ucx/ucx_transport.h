// SPDX-License-Identifier: Apache-2.0
//
// A transport over one UCP worker. Each operation is passed to UCX as the user data of its request,
// so its completion needs no look-up. A send that completes at once (any small send) accesses
// nothing but the endpoint.
//
// How an endpoint ends (ucx_ending.cc):
//
//   open ── peer died (UCX's error handler) ──▶ lost ── close() ──▶ closed
//     └────────────────── close() ─────────────────────────────────────────────────▲
//
// In the states lost and closed, new sends fail at once with the endpoint's code. Sends in flight
// also end at once, without UCX, if no NIC can read their buffers (ContextFacts::buffered). UCX may
// never complete some requests; only the destruction of the worker is certain to end all of them.
// So the worker is destroyed if requests remain for too long:
//
//   working ── a cancelled receive outlives the end of an endpoint by 250 ms ──▶ broken
#pragma once

#include "ucx/api.h"
#include "ucx/completions.h"
#include "ucx/request_state.h"
#include "xylem/base/clock.h"
#include "xylem/base/log.h"
#include "xylem/base/unique_fd.h"
#include "xylem/transport/transport.h"
#include "xylem/transport/ucx.h"

#include <ucp/api/ucp.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace xylem::transport::ucx {

/// Constructs the RequestState (ucx/request_state.h: Xylem's own data about a request) in a new UCX
/// request.
void init_request(void* request) noexcept;

/// Facts about a UCP context, which are determined before its transport is made.
struct ContextFacts {
  UcxReach reach = UcxReach::network;
  bool cuda = false;  ///< The context can send and receive CUDA memory.
  /// True if UCX reads the buffer of a send only while Xylem is within a call of UCX, as it does
  /// over TCP. False if a NIC may read the buffer at any time (RDMA).
  bool buffered = false;
};

class UcxTransport final : public Transport {
 public:
  static Result<std::unique_ptr<Transport>> create(Context context,
                                                   Worker worker,
                                                   const ContextFacts& facts,
                                                   Logger logger);
  UcxTransport(const UcxTransport&) = delete;
  UcxTransport& operator=(const UcxTransport&) = delete;
  /// Closes all endpoints and drives the worker until nothing is in flight, for at most a quarter
  /// of a second. Destroying the worker ends the rest. If the owner, against the contract, left
  /// operations pending, their `done` is not called and they are not accessed.
  ~UcxTransport() override;

  std::string_view name() const noexcept override { return "ucx"; }
  Capabilities capabilities() const noexcept override {
    return {.sends_devices = facts_.cuda, .receives_devices = facts_.cuda};
  }
  std::span<const std::byte> address() const noexcept override { return address_; }
  Result<EndpointId> connect(std::span<const std::byte> address) override;
  Posted send(EndpointId to, Tag tag, ConstRegion source, Operation& operation) noexcept override;
  Posted recv(
      Tag tag, Tag mask, Region target, Operation& operation, Tag* sender_tag) noexcept override;
  void cancel(Operation& operation) noexcept override;
  std::size_t discard(Tag tag, Tag mask) noexcept override;
  unsigned progress() noexcept override;
  bool flush(EndpointId endpoint) noexcept override;
  Result<bool> arm() noexcept override;
  int wake_fd() const noexcept override { return wake_.get(); }
  void close(EndpointId endpoint) noexcept override;
  std::vector<PhysicalPath> paths(EndpointId endpoint) const override;
  Traffic traffic(EndpointId endpoint) const noexcept override;

 private:
  /// An endpoint. It must keep its address, since UCX passes this address to callbacks.
  struct Endpoint {
    UcxTransport* owner = nullptr;
    EndpointId id = 0;
    ucp_ep_h handle = nullptr;  ///< Null once closed.
    Code lost = Code::ok;       ///< The code with which sends fail; ok while usable.
    Traffic traffic;
    std::uint64_t posted = 0;    ///< Number of sends so far.
    std::uint64_t flushing = 0;  ///< Number of sends that the flush in progress covers.
    std::uint64_t flushed = 0;   ///< Number of sends that have been flushed.
    RequestRing sends;           ///< The sends in flight.
  };

  UcxTransport(Context context, Worker worker, const ContextFacts& facts, Logger logger);
  Status open();

  static void on_sent(void* request, ucs_status_t status, void* user_data) noexcept;
  static void on_received(void* request,
                          ucs_status_t status,
                          const ucp_tag_recv_info_t* info,
                          void* user_data) noexcept;
  static void on_discarded(void* request,
                           ucs_status_t status,
                           const ucp_tag_recv_info_t* info,
                           void* user_data) noexcept;
  static void on_closed(void* request, ucs_status_t status, void* user_data) noexcept;
  static void on_flushed(void* request, ucs_status_t status, void* user_data) noexcept;
  static void on_failed(void* endpoint, ucp_ep_h handle, ucs_status_t status) noexcept;

  bool idle() const noexcept;
  bool begin_flush(Endpoint& endpoint);
  void cut(Endpoint& endpoint);
  void end_sends(Endpoint& endpoint);
  void end_all(RequestRing& ring, Code code);
  void detach(RequestState& state) noexcept;
  bool stuck() const;
  void break_when_stuck();
  void end_worker();

  // A worker must be destroyed before its context.
  Context context_;
  Worker worker_;  ///< Null once the transport is broken.
  const ContextFacts facts_;
  const Logger logger_;
  UniqueFd wake_;  ///< A duplicate of the worker's event descriptor, for the owner to poll.
  std::vector<std::byte> address_;

  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  std::uint32_t epoch_ = 0;  ///< Number of endpoints lost or closed so far.

  RequestRing receives_;
  RequestRing detached_;        ///< Requests that UCX still uses, but whose operations have ended.
  std::uint64_t arriving_ = 0;  ///< Number of receives that were cancelled and have not ended.
  /// Numbers of discards, closings and flushes in flight.
  std::uint64_t discards_ = 0;
  std::uint64_t closings_ = 0;
  std::uint64_t flushes_ = 0;
  std::optional<Deadline> patience_;  ///< Set while the transport is stuck(): the end of the wait.

  Tag arrived_tag_ = 0;  ///< Tag of a message that matched a receive during recv().
  Completions completions_;
};

}  // namespace xylem::transport::ucx
