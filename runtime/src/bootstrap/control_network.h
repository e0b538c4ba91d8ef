// SPDX-License-Identifier: Apache-2.0
//
// ControlNetwork: the control plane once its connections are made. It moves frames, floods,
// gathers, and notices which ranks end.
//
// Flooding: a rank passes whatever is new to it (control_news.h) to all its other neighbours.
// Connections keep their order, and every rank passes messages on in the order in which it heard
// them, so no rank hears a later message of an origin before an earlier one.
#pragma once

#include "bootstrap/control_link.h"
#include "bootstrap/control_news.h"
#include "bootstrap/control_plane.h"
#include "bootstrap/control_requests.h"
#include "bootstrap/gather_inbox.h"
#include "bootstrap/handshake.h"
#include "bootstrap/interface.h"
#include "bootstrap/payload_connections.h"
#include "bootstrap/poller.h"
#include "xylem/base/unique_fd.h"

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
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
  std::string interface() const override { return choice_.chosen.name; }

  Result<std::vector<ByteVector>> all_gather(ByteSpan mine, Deadline deadline) override;
  int fd() const noexcept override { return poller_.fd(); }
  Clock::time_point serve(ControlListener& listener) override;
  void flood(ByteSpan message) override;
  void request_connection(std::uint32_t rank) override;
  void leave(Deadline deadline) override;

  // The following functions are used while joining:

  /// Makes connections for payload possible; `key` is for their handshakes.
  void open_payload_connections(Key key);

  /// Like all_gather(), but the caller has to tell the others of a failure.
  Result<std::vector<ByteVector>> gather(ByteSpan mine, Deadline deadline);

  /// Takes over a connection to a peer that has proven the job's secret.
  Status add_link(UniqueFd fd, const Member& peer, const FrameKeys& keys);
  bool has_link(std::uint32_t rank) const noexcept { return find_link(rank) != nullptr; }
  bool is_lost(std::uint32_t rank) const { return news_.presence(rank) == Presence::lost; }
  /// Moves what can be moved, and waits up to `milliseconds` for something to move. Returns the
  /// error, if any, that ended the start here or at another rank.
  Status drive(int milliseconds);
  /// Call this if a rank to which this rank was to be connected has ended.
  void declare_lost(std::uint32_t rank, std::string_view how, const ControlLink* from = nullptr);
  /// Tells the others why the start failed here, as far as is possible without waiting.
  void report_failure(const Status& status);

 private:
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
  using Event = std::variant<Lost, Left, Message, PayloadConnection, PayloadConnections::Failed>;

  ControlNetwork(const Member& self, InterfaceChoice choice, Logger logger);

  ControlLink* find_link(std::uint32_t rank) const noexcept;
  /// Reads and handles once what has arrived; true if more may have arrived. If the link has ended,
  /// `how` says how; if `how` is empty, the error of reading does.
  bool receive(ControlLink& link, std::string_view how = {});
  /// Ends a link whose other end is closed, after handling what its peer said before, above all a
  /// goodbye.
  void drain_link(ControlLink& link, std::string_view how);
  Status handle_frame(ControlLink& link, const ControlFrame& frame);
  void declare_left(std::uint32_t rank, const ControlLink* from);
  void close(ControlLink& link);
  void link_ended(ControlLink& link, std::string_view how);
  void broadcast(const ControlFrame& frame, const ControlLink* except = nullptr);
  void send_outbox();
  void flush_links();
  void check_for_silence();
  Status exchange(BruckGather& gather, std::uint32_t number, Deadline deadline);
  Status wait_until_sent(Deadline deadline);
  void handle_invitation(const ControlLink& link, const Invitation& invitation);
  void send_invitation(const Invitation& invitation);
  ControlLink* next_towards(std::uint32_t rank) const noexcept;
  void progress_payload_connections();
  static void deliver(Event& event, ControlListener& listener);

  Member self_;
  InterfaceChoice choice_;
  Logger logger_;
  Poller poller_;
  ControlRequests requests_;
  std::vector<std::unique_ptr<ControlLink>> links_;
  /// When unacknowledged bytes are looked at again; max() without links to other hosts.
  Clock::time_point next_silence_check_ = Clock::time_point::max();
  ControlNews news_;
  std::uint32_t sent_ = 0;  ///< Number of this rank's own last message.
  std::deque<Event> events_;
  Status failure_;  ///< Why the start failed; not used any more after the start.
  bool is_serving_ = false;
  bool has_left_ = false;
  GatherInbox gathers_;
  std::unique_ptr<PayloadConnections> payload_connections_;
};

}  // namespace xylem::runtime
