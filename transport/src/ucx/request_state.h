// SPDX-License-Identifier: Apache-2.0
//
// RequestState: what Xylem stores in a UCX request in flight: the operation, and pointers to the
// neighbours in a circular list of requests. With this list, all requests in flight can be visited
// without any allocation.
#pragma once

#include "xylem/transport/transport.h"

#include <cstdint>

namespace xylem::transport::ucx {

class UcxTransport;

struct RequestState {
  RequestState* next = nullptr;
  RequestState* previous = nullptr;
  UcxTransport* owner = nullptr;  ///< For a receive: null until recv() has returned.
  /// Null if the operation has ended before UCX finished the request.
  Operation* operation = nullptr;
  Tag* sender_tag = nullptr;  ///< For a receive: where to store the message's tag, or null.
  bool cancelled = false;     ///< cancel() was called, and UCX has not completed the request yet.
  std::uint32_t epoch = 0;    ///< For a receive: UcxTransport::epoch_ when it was posted.
};

/// A circular list of requests, oldest first. The list does not own the requests.
class RequestRing {
 public:
  RequestRing() noexcept { head_.next = head_.previous = &head_; }
  RequestRing(const RequestRing&) = delete;
  RequestRing& operator=(const RequestRing&) = delete;
  ~RequestRing() = default;

  bool empty() const noexcept { return head_.next == &head_; }
  template <typename Predicate>
  bool any_of(Predicate predicate) const {
    const RequestState* state = head_.next;
    while (state != &head_ && !predicate(*state)) state = state->next;
    return state != &head_;
  }
  RequestState& front() noexcept { return *head_.next; }
  void push_back(RequestState& state) noexcept {
    state.next = &head_;
    state.previous = head_.previous;
    state.previous->next = &state;
    head_.previous = &state;
  }
  static void remove(RequestState& state) noexcept {
    state.previous->next = state.next;
    state.next->previous = state.previous;
  }
  /// Empties the list without accessing the requests. Call this when their memory has been freed.
  void forget() noexcept { head_.next = head_.previous = &head_; }

 private:
  RequestState head_;
};

}  // namespace xylem::transport::ucx
