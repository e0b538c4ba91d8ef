// SPDX-License-Identifier: Apache-2.0
//
// The messages of an incoming channel that are announced before they come: what is known of each,
// where it goes, and how much of it is there. One that its receiver can read where it lies is
// shown there, or fetched from there piece by piece; another one comes in fragments, once granted.
#pragma once

#include "matcher.h"
#include "outcome.h"
#include "shm/owner.h"
#include "shm/peer_memory.h"
#include "shm/segment.h"
#include "xylem/transport/transport.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace xylem::transport::shm {

class IncomingStreams {
 public:
  /// Of the channel `channel`; says in `credit` which are granted. `memory` is the sender's.
  IncomingStreams(std::uint32_t channel,
                  const Withdrawal& withdrawal,
                  const Owner& sender,
                  PeerMemory& memory,
                  Credit& credit,
                  Matcher& matcher,
                  Outcomes& outcomes) noexcept
      : channel_(channel),
        withdrawal_(&withdrawal),
        sender_(sender),
        memory_(&memory),
        credit_(&credit),
        matcher_(&matcher),
        outcomes_(&outcomes) {}

  /// Whether one is under way.
  bool any_open() const noexcept { return open_ > 0; }
  /// Whether fetch() has something to do.
  bool any_fetching() const noexcept { return fetching_ != 0; }

  /// What became of an entry.
  enum class Taken : std::uint8_t {
    well,
    no_memory,  ///< It stays in the ring.
    never,      ///< No sender of the same build writes such.
  };
  /// A new one.
  Taken announce(const Head& head, const Location& location);
  /// More of one. False if nothing more of it was to come.
  bool take_fragment(const Head& head, const std::byte* data);
  /// Goes on with those that lie where they can be read; returns with how many.
  unsigned fetch();
  /// The announced one `id` goes to this receive.
  void meet(std::uint8_t id, const Receive& receive);
  /// The announced one `id` goes nowhere.
  void refuse(std::uint8_t id);
  /// Ends the receive of this operation with cancelled; false if it has met no stream here. Nothing
  /// is written to its target any more.
  bool cancel(const Operation& operation);
  /// The sender sends no more of stream `id`.
  void withdraw(std::uint8_t id);
  /// Ends the view of one. False if the sender has withdrawn what was looked at.
  bool release(std::uint8_t id) noexcept;
  /// Receives that have met one end with peer_lost; what still comes is dropped.
  void give_up();
  /// Nothing comes any more.
  void end();

 private:
  struct Stream {
    enum class Use : std::uint8_t {
      free,
      announced,
      met,      ///< Its message is fetched, or comes through slots.
      dropped,  ///< What comes is for nobody.
      viewed,   ///< Its message is looked at where it lies.
    };
    Use use = Use::free;
    bool has_looked = false;  ///< For its memory at the door.
    Tag tag = 0;
    std::uint64_t bytes = 0;
    std::uint64_t received = 0;
    Receive receive;
    Location location{};
  };

  static void bring(const Stream& stream, const std::byte* data, std::uint64_t bytes) noexcept;
  void fetch_piece(std::uint8_t id);
  void show(std::uint8_t id, const std::byte* data);
  void take_through_slots(std::uint8_t id);
  void end_stream(std::uint8_t id) noexcept;
  void end_here(std::uint8_t id) noexcept;
  void end_with(std::uint8_t id, Code code) noexcept;
  bool is_withdrawn(std::uint8_t id) const noexcept;
  Code withdrawal_code() const noexcept;
  /// The sender has no more to do for it if it `is_fetched`; else fragments are to come.
  void grant(std::uint8_t id, bool is_fetched) noexcept;

  std::uint32_t channel_;
  const Withdrawal* withdrawal_;
  Owner sender_;
  PeerMemory* memory_;
  Credit* credit_;
  Matcher* matcher_;
  Outcomes* outcomes_;
  std::uint64_t granted_ = 0, fetched_ = 0;  ///< As the sender knows them.
  std::uint64_t fetching_ = 0;               ///< A bit for each that fetch() has work with.
  std::uint32_t open_ = 0;
  std::array<Stream, kStreams> streams_;
};

}  // namespace xylem::transport::shm
