// SPDX-License-Identifier: Apache-2.0
//
// ControlNetwork: the control plane once its connections are made. It moves frames, floods,
// gathers, and notices which ranks end.
//
// Flooding: a rank passes whatever is new to it to all its other neighbours. Deaths and goodbyes
// are new once per rank. A message is new if its number exceeds the last one of its origin.
// Connections keep their order, and every rank passes messages on in the order in which it heard
// them, so no rank hears a later message of an origin before an earlier one.
#pragma once

#include "bootstrap/control_link.h"
#include "bootstrap/control_plane.h"
#include "bootstrap/handshake.h"
#include "bootstrap/interface.h"
#include "bootstrap/meetings.h"
#include "bootstrap/poller.h"
#include "xylem/base/mutex.h"
#include "xylem/base/unique_fd.h"

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
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

  // The following functions are used while joining:

  /// Makes connections for payload possible; `key` is for their handshakes.
  void open_meetings(Key key);

  /// Like all_gather(), but the caller has to tell the others of a failure.
  Result<std::vector<ByteVector>> gather(ByteSpan mine, Deadline deadline);

  /// Takes over a connection to a peer that has proven the job's secret.
  Status add_link(UniqueFd fd, const Member& peer, const FrameKeys& keys);
  bool has_link(std::uint32_t rank) const noexcept { return find_link(rank) != nullptr; }
  bool is_lost(std::uint32_t rank) const { return presence_[rank] == Presence::lost; }
  /// Moves what can be moved, and waits up to `milliseconds` for something to move. Returns the
  /// error, if any, that ended the start here or at another rank.
  Status drive(int milliseconds);
  /// Call this if a rank to which this rank was to be connected has ended.
  void declare_lost(std::uint32_t rank, std::string_view how, const ControlLink* from = nullptr);
  /// Tells the others why the start failed here, as far as is possible without waiting.
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

  /// What has arrived of one round of a gather.
  struct Incoming {
    ByteVector bytes;
    bool is_complete = false;
  };

  ControlNetwork(const Member& self, InterfaceChoice choice, Logger logger);

  ControlLink* find_link(std::uint32_t rank) const noexcept;
  void handle_link(ControlLink& link);
  void handle_process(ControlLink& link);
  /// Reads and handles once what has arrived; true if more may have arrived. If the link has ended,
  /// `how` says how; if `how` is empty, the error of reading does.
  bool hear(ControlLink& link, std::string_view how = {});
  /// Ends a link whose other end is closed, after handling what its peer said before, above all a
  /// goodbye.
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
  std::vector<bool> wants_write_;  ///< wants_write_[i] is for links_[i].
  bool has_remote_ = false;
  Clock::time_point next_look_ = Clock::time_point::max();

  std::vector<Presence> presence_;    ///< The presence of each rank.
  std::vector<std::uint32_t> heard_;  ///< heard_[r] is the number of the last message of rank r.
  std::uint32_t sent_ = 0;            ///< Number of this rank's own last message.
  std::deque<Event> events_;
  Status failure_;  ///< Why the start failed; not used any more after the start.
  bool is_serving_ = false;
  bool has_left_ = false;

  std::uint32_t gathers_ = 0;
  /// The key is the number of the gather and of its round.
  std::map<std::pair<std::uint32_t, std::uint8_t>, Incoming> incoming_;

  std::unique_ptr<Meetings> meetings_;
  /// For each host rank, the number of its last flooded invitation.
  std::vector<std::uint32_t> heard_invitations_;

  Mutex mutex_;
  std::vector<ByteVector> outbox_ XYLEM_LOCKING(guarded_by(mutex_));
  /// Ranks to which connections are asked for.
  std::vector<std::uint32_t> wanted_ XYLEM_LOCKING(guarded_by(mutex_));
};

}  // namespace xylem::runtime
