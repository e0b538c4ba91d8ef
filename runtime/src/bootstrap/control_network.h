// SPDX-License-Identifier: Apache-2.0
//
// ControlNetwork: the control plane once its connections stand. It moves frames, floods, gathers
// and notices who ends.
//
// Flooding: whoever hears something new passes it to all its other neighbours. Deaths and goodbyes
// are new once per rank. Messages are new while their number exceeds the last of their origin:
// connections keep their order and everybody passes on in the order of hearing, so of one origin
// nobody ever hears a later message first.
#pragma once

#include "bootstrap/control_link.h"
#include "bootstrap/control_plane.h"
#include "bootstrap/handshake.h"
#include "bootstrap/interface.h"
#include "bootstrap/meetings.h"
#include "bootstrap/poller.h"
#include "xylem/base/unique_fd.h"

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace xylem::runtime {

class BruckGather;

class ControlNetwork final : public ControlPlane {
 public:
  static Result<std::unique_ptr<ControlNetwork>> create(const Member& self,
                                                        InterfaceChoice choice,
                                                        const Logger& logger);
  ControlNetwork(const ControlNetwork&) = delete;
  ControlNetwork& operator=(const ControlNetwork&) = delete;
  ~ControlNetwork() override = default;

  std::uint32_t rank() const noexcept override { return self_.rank; }
  std::uint32_t size() const noexcept override { return self_.size; }
  std::string address() const override { return choice_.chosen.address.host(); }
  std::string interface() const override { return choice_.chosen.name; }
  std::string interface_reason() const override { return choice_.reason; }

  Result<std::vector<ByteVector>> all_gather(ByteSpan mine, Deadline deadline) override;
  int fd() const noexcept override { return poller_.fd(); }
  Clock::time_point serve(ControlListener& listener) override;
  void flood(ByteSpan message) override;
  void ask_for(std::uint32_t rank) override;
  void leave(Deadline deadline) override;

  // While joining:

  /// From now on there are meetings; `key` is for their handshakes.
  void open_meetings(Key key);

  /// all_gather() that leaves it to the caller to tell the others of its failure.
  Result<std::vector<ByteVector>> gather(ByteSpan mine, Deadline deadline);

  /// Takes over a connection to a peer that has proven itself.
  Status add_link(UniqueFd fd, const Member& peer, const FrameKeys& keys);
  bool has_link(std::uint32_t rank) const noexcept { return find_link(rank) != nullptr; }
  bool is_lost(std::uint32_t rank) const { return presence_[rank] == Presence::lost; }
  /// Moves what can be moved, waiting for that up to `milliseconds`. The error, if any, that ended
  /// the start here or at another rank.
  Status drive(int milliseconds);
  /// A rank that was to be connected to has ended.
  void declare_lost(std::uint32_t rank, std::string_view how, const ControlLink* from = nullptr);
  /// Tells the others why the start failed here, as far as they can be told at once.
  void report_failure(const Status& status);

 private:
  enum class Presence : std::uint8_t { here, left, lost };

  struct Lost {
    std::uint32_t rank;
    std::string how;
  };
  struct Left {
    std::uint32_t rank;
  };
  struct Message {
    std::uint32_t origin;
    ByteVector bytes;
  };
  using Event = std::variant<Lost, Left, Message, Encounter, Meetings::Failed>;

  /// What has come of one round of a gather.
  struct Incoming {
    ByteVector bytes;
    bool is_complete = false;
  };

  ControlNetwork(const Member& self, InterfaceChoice choice, Logger logger);

  ControlLink* find_link(std::uint32_t rank) const noexcept;
  void handle_link(ControlLink& link);
  void handle_process(ControlLink& link);
  /// Reads and hears once; true if more may have arrived. `how` the link ended if it has; by itself
  /// what reading says.
  bool hear(ControlLink& link, std::string_view how = {});
  /// Ends a link whose other end is closed. What its peer said comes first: a goodbye, above all.
  void hear_out(ControlLink& link, std::string_view how);
  Status hear_frame(ControlLink& link, const ControlFrame& frame);
  Status hear_gather(const ControlLink& link, const GatherFrame& frame);
  void declare_left(std::uint32_t rank, const ControlLink* from);
  void close(ControlLink& link);
  void link_ended(ControlLink& link, std::string_view how);
  void broadcast(const ControlFrame& frame, const ControlLink* except = nullptr);
  void send_outbox();
  void flush_links();
  void look_for_silence();
  Status exchange(BruckGather& gather, std::uint32_t number, Deadline deadline);
  Status wait_until_sent(Deadline deadline);
  void hear_invitation(const ControlLink& link, const InvitationFrame& frame);
  void send_invitation(const InvitationFrame& frame);
  ControlLink* next_towards(std::uint32_t rank) const noexcept;
  void hold_meetings();
  static void deliver(Event& event, ControlListener& listener);

  Member self_;
  InterfaceChoice choice_;
  Logger logger_;
  Poller poller_;
  UniqueFd wake_;
  std::vector<std::unique_ptr<ControlLink>> links_;
  std::vector<bool> wants_write_;  ///< By index of links_.
  bool has_remote_ = false;
  Clock::time_point next_look_ = Clock::time_point::max();

  std::vector<Presence> presence_;    ///< By rank.
  std::vector<std::uint32_t> heard_;  ///< Number of the last message, by origin.
  std::uint32_t sent_ = 0;            ///< Number of our own last message.
  std::deque<Event> events_;
  Status failure_;  ///< Of the start; not looked at any more once serving.
  bool is_serving_ = false;
  bool has_left_ = false;

  std::uint32_t gathers_ = 0;
  std::map<std::pair<std::uint32_t, std::uint8_t>, Incoming> incoming_;  ///< By gather and round.

  std::unique_ptr<Meetings> meetings_;
  std::vector<std::uint32_t> heard_invitations_;  ///< Number of the last flooded, by host.

  std::mutex mutex_;  ///< Of what follows.
  std::vector<ByteVector> outbox_;
  std::vector<std::uint32_t> wanted_;  ///< Ranks that connections are asked for.
};

}  // namespace xylem::runtime
