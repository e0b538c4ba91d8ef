// SPDX-License-Identifier: Apache-2.0
//
// ShmTransport: holds, which stop peers from sending messages that nobody receives (want.h).
#include "shm/shm_transport.h"

#include <algorithm>
#include <utility>

namespace xylem::transport::shm {

/// The endpoint whose channel leads to the peer of an incoming channel; null if there is none.
ShmTransport::Endpoint* ShmTransport::way_back(const Source& source) noexcept {
  const auto at = std::ranges::find_if(endpoints_, [&](const Endpoint& endpoint) {
    return endpoint.nonce == source.peer->nonce && endpoint.outgoing.is_open();
  });
  return at == endpoints_.end() ? nullptr : &*at;
}

void ShmTransport::say(Source& source, const Want& wanted) {
  Endpoint* const back = way_back(source);
  const bool is_said = back == nullptr || (source.unsaid.empty() &&
                                           back->outgoing.tell(wanted, source.incoming.holds()));
  if (!is_said) source.unsaid.push_back(wanted);
}

/// Handles a receive that has met no message: tells the sender of every channel on hold, since each
/// of them may have the message.
void ShmTransport::want(const Receive& receive) {
  for (Source& source : sources_) {
    if (is_hold(source.incoming.holds())) say(source, {receive.tag, receive.mask});
  }
}

/// Starts and ends holds. A channel without a way back to its sender is never held.
unsigned ShmTransport::heed_kept() {
  unsigned count = 0;
  for (Source& source : sources_) {
    const bool is_held = is_hold(source.incoming.holds());
    if (source.incoming.is_hold_due() != is_held && (is_held || way_back(source) != nullptr)) {
      source.incoming.turn_hold();
      ++count;
      source.unsaid.clear();
      if (is_held) {
        --held_;
        continue;
      }
      ++held_;
      matcher_.for_each_posted([&](const Receive& receive) {
        say(source, {receive.tag, receive.mask});
      });
    }
    if (source.unsaid.empty()) continue;
    std::vector<Want> unsaid = std::exchange(source.unsaid, {});
    for (const Want& wanted : unsaid) say(source, wanted);
    count += unsaid.size() != source.unsaid.size() ? 1 : 0;
  }
  return count;
}

/// Processes the wants that peers have sent.
void ShmTransport::heed_wants() {
  for (const HeardWant& heard : wants_) {
    if (Endpoint* const back = way_back(sources_[heard.channel])) {
      back->outgoing.heed(heard.want, heard.holds);
    }
  }
  wants_.clear();
}

}  // namespace xylem::transport::shm
