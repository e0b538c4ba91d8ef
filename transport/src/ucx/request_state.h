// SPDX-License-Identifier: Apache-2.0
//
// RequestState: what Xylem stores in a UCX request in flight. It contains the operation, and
// pointers to the neighbours in a circular list of requests. The list allows walking over all
// requests in flight without any allocation.
#pragma once

#include "xylem/transport/transport.h"

#include <cstdint>

namespace xylem::transport::ucx {

class UcxTransport;

struct RequestState {
  RequestState* next = nullptr;
  RequestState* previous = nullptr;
  UcxTransport* owner = nullptr;  ///< Null until recv() has returned.
  /// Null if the operation has ended before UCX finished the request.
  Operation* operation = nullptr;
  Tag* sender_tag = nullptr;  ///< Set for receives only.
  bool cancelled = false;     ///< cancel() was called, and UCX has not completed the request yet.
  std::uint32_t epoch = 0;    ///< For a receive: the number of ended endpoints when it was posted.
};

/// A circular list of requests, oldest first. It does not own them.
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
  /// Empties the ring without touching the requests, whose memory has been freed.
  void forget() noexcept { head_.next = head_.previous = &head_; }

 private:
  RequestState head_;
};

}  // namespace xylem::transport::ucx
