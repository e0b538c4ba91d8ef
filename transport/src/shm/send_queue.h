// SPDX-License-Identifier: Apache-2.0
//
// SendQueue: the sends of an outgoing channel that have not completed, each in the list of its
// stage.
//
//   queued ─────────────────► begun: complete, announced (as a stream), or copying (by a device)
//     ├─ no stream id is free ──► waiting_for_stream_id ──► begun
//     └─ the receiver has requested it (hold.h) ──► requested ──► begun
//
// Messages with equal tags begin in the order in which they were pushed: of two messages that have
// not begun, the older one is in an earlier list (in the order requested, waiting_for_stream_id,
// queued), or earlier in the same list.
#pragma once

#include "outcome.h"
#include "receive.h"
#include "shm/hold.h"
#include "shm/segment.h"
#include "xylem/transport/transport.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <utility>
#include <vector>

namespace xylem::transport::shm {

/// A message that is to be sent.
struct Outbound {
  const std::byte* data = nullptr;
  std::uint64_t bytes = 0;
  Memory memory{};      ///< The kind of memory that `data` is in.
  Location location{};  ///< Where the receiver may be able to read it.
  DevicePlace place{};  ///< For Location::Where::device.
};

/// A send that has not completed.
struct Sending {
  enum class Stage : std::uint8_t {
    requested,
    waiting_for_stream_id,
    queued,
    announced,
    copying,  ///< All pieces of the message are begun, but a device is still copying some of them.
  };

  Operation* operation = nullptr;
  Outbound message{};
  Tag tag = 0;
  bool fits_slot = true;
  Stage stage = Stage::queued;
  std::uint8_t id = 0;       ///< The id of the message's stream, once announced.
  Code code = Code::ok;      ///< The code with which the send completes after `copying`.
  std::uint32_t copies = 0;  ///< How many pieces of the message a device is copying.
  std::uint64_t sent = 0;    ///< How many bytes are in the ring, or being copied there.

  bool is_announced() const noexcept {
    return message.location.where != Location::Where::nowhere || !fits_slot;
  }
};

/// The result of an attempt to begin a message.
enum class Begun : std::uint8_t {
  ok,
  no_room,       ///< There is no free entry in the ring, or no free slot.
  no_stream_id,  ///< There is no free stream id. Messages that fit into a slot need none.
  failed,        ///< The device memory that holds the message cannot be read.
};

class SendQueue {
 public:
  using Stage = Sending::Stage;
  using List = std::list<Sending>;
  using Position = List::iterator;

  /// Completions are appended to `outcomes`.
  explicit SendQueue(Outcomes& outcomes) noexcept : outcomes_(&outcomes) {}

  bool is_empty() const noexcept { return count_ == 0; }
  bool has(Stage stage) const noexcept { return !lists_[index(stage)].empty(); }
  /// Whether messages may begin in an order other than that of push().
  bool is_reordered() const noexcept {
    return has(Stage::requested) || has(Stage::waiting_for_stream_id);
  }
  /// Whether any message has not begun. If so, push() must be called for a new message.
  bool has_unbegun() const noexcept { return has(Stage::queued) || is_reordered(); }

  /// Adds a message that has begun and has not completed.
  void add_begun(const Sending& sending) {
    add(sending, sending.is_announced() ? Stage::announced : Stage::copying);
  }
  /// Adds a message that has not begun. `holds` is the receiver's Credit::holds: during a hold, the
  /// receiver may have requested the message already.
  void push(const Sending& sending, std::uint64_t holds) {
    add(sending, take_request(sending.tag, holds) ? Stage::requested : Stage::queued);
  }
  /// Marks the oldest message that matches as requested. If none matches, the request applies to
  /// the next matching message that is pushed during this hold.
  void request(const Request& request, std::uint64_t holds) {
    for (const Stage stage : {Stage::waiting_for_stream_id, Stage::queued}) {
      List& list = lists_[index(stage)];
      const auto at = std::ranges::find_if(list, [&](const Sending& sending) {
        return tag_matches(sending.tag, request.tag, request.mask);
      });
      if (at != list.end()) return move(at, Stage::requested);
    }
    if (std::exchange(holds_of_requests_, holds) != holds) requests_.clear();
    requests_.push_back(request);
  }

  /// Calls `begin(sending, is_requested)` for the messages in order, until there is no room. While
  /// `is_held()`, only requested messages begin. Returns how many messages have begun.
  template <typename Begin, typename IsHeld>
  unsigned pump(const Begin& begin, const IsHeld& is_held) {
    unsigned count = 0;
    if (!pump_list(Stage::requested, begin, count) || is_held()) return count;
    if (pump_list(Stage::waiting_for_stream_id, begin, count)) {
      pump_list(Stage::queued, begin, count);
    }
    return count;
  }
  template <typename Visit>
  void for_each_announced(const Visit& visit) {
    List& list = lists_[index(Stage::announced)];
    for (auto it = list.begin(); it != list.end();) visit(it++);
  }

  /// The position of an operation's message; nullopt if it is not in this queue.
  std::optional<Position> find(const Operation& operation) noexcept {
    for (List& list : lists_) {
      const auto at = std::ranges::find(list, &operation, &Sending::operation);
      if (at != list.end()) return at;
    }
    return std::nullopt;
  }
  /// Completes a message: at once, or when a device has finished the copies of its pieces.
  void complete(Position at, Code code = Code::ok) {
    if (at->copies > 0) {
      at->code = code;
      return move(at, Stage::copying);
    }
    outcomes_->push_back({at->operation, code, 0});
    spare_.splice(spare_.begin(), lists_[index(at->stage)], at);
    --count_;
  }
  /// Completes all messages with `code`, except those in the stage `copying`.
  void complete_all(Code code) {
    for (std::size_t stage = 0; stage < index(Stage::copying); ++stage) {
      while (!lists_[stage].empty()) complete(lists_[stage].begin(), code);
    }
  }

 private:
  static constexpr std::size_t index(Stage stage) { return static_cast<std::size_t>(stage); }

  void add(const Sending& sending, Stage stage) {
    if (spare_.empty()) spare_.emplace_back();
    List& list = lists_[index(stage)];
    list.splice(list.end(), spare_, spare_.begin());
    list.back() = sending;
    list.back().stage = stage;
    ++count_;
  }
  void move(Position at, Stage stage) noexcept {
    List& list = lists_[index(stage)];
    list.splice(list.end(), lists_[index(at->stage)], at);
    at->stage = stage;
  }

  bool take_request(Tag tag, std::uint64_t holds) noexcept {
    if (holds != holds_of_requests_) return false;
    const auto at = std::ranges::find_if(requests_, [tag](const Request& request) {
      return tag_matches(tag, request.tag, request.mask);
    });
    if (at == requests_.end()) return false;
    requests_.erase(at);
    return true;
  }

  /// Whether a queued message must wait, because messages that wait for a stream id must begin
  /// before it.
  bool must_wait(const Sending& sending) const noexcept {
    const List& waiting = lists_[index(Stage::waiting_for_stream_id)];
    if (waiting.empty()) return false;
    return !sending.fits_slot ||
           std::ranges::find(waiting, sending.tag, &Sending::tag) != waiting.end();
  }
  /// Begins the messages of a list. False if the messages of later lists must not begin in this
  /// pass.
  template <typename Begin>
  bool pump_list(Stage stage, const Begin& begin, unsigned& count) {
    const bool is_queued = stage == Stage::queued, is_requested = stage == Stage::requested;
    List& list = lists_[index(stage)];
    for (auto it = list.begin(); it != list.end();) {
      const auto at = it++;
      const Begun begun =
          is_queued && must_wait(*at) ? Begun::no_stream_id : begin(*at, is_requested);
      if (begun == Begun::no_room) return false;
      if (begun == Begun::no_stream_id && !is_queued) return !is_requested;
      if (begun == Begun::no_stream_id) {
        move(at, Stage::waiting_for_stream_id);
        continue;
      }
      ++count;
      if (begun == Begun::ok && at->is_announced()) {
        move(at, Stage::announced);
      } else {
        complete(at, begun == Begun::failed ? Code::internal : Code::ok);
      }
    }
    return true;
  }

  Outcomes* outcomes_;
  std::array<List, 5> lists_;  ///< lists_[s] has the messages of stage s.
  List spare_;
  std::size_t count_ = 0;
  std::vector<Request> requests_;        ///< Requests for messages that have not been pushed yet.
  std::uint64_t holds_of_requests_ = 0;  ///< The Credit::holds for which `requests_` is valid.
};

}  // namespace xylem::transport::shm
