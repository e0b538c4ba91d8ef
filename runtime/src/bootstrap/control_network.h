// SPDX-License-Identifier: Apache-2.0
//
// ControlNetwork: the control plane over connections that ControlJoin makes. It sends and receives
// frames, floods, gathers, and detects the ends of ranks.
//
// Flooding: a rank forwards each frame that is new to it (control_news.h) to all neighbours except
// the sender, unless it has just sent or forwarded another message of the same topic. The ranks
// that forward the messages of a topic meet, so no rank is left out. Each connection keeps the
// order of its frames, and each rank forwards frames in the order of their arrival. So every rank
// receives the messages of one origin in the order in which they were sent.
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
  std::vector<Interface> interfaces() const override;
  void listen_for_payload_at(const SocketAddress& address) override;

  Result<std::vector<ByteVector>> all_gather(ByteSpan mine, Deadline deadline) override;
  int fd() const noexcept override { return poller_.fd(); }
  Clock::time_point serve(ControlListener& listener) override;
  void flood(ByteSpan message, std::uint64_t topic) override;
  void send(std::uint32_t rank, ByteSpan message) override;
  void request_connection(std::uint32_t rank) override;
  void leave(Deadline deadline) override;

  // The following functions are used while joining:

  /// Enables connections for payload. Their handshakes use `key`.
  void open_payload_connections(Key key);

  /// Like all_gather(), but does not report a failure to the other ranks: the caller must do so.
  Result<std::vector<ByteVector>> gather(ByteSpan mine, Deadline deadline);

  /// Adds a connection to a peer that has proven the job's secret.
  Status add_link(UniqueFd fd, const Member& peer, const FrameKeys& keys);
  bool has_link(std::uint32_t rank) const noexcept { return find_link(rank) != nullptr; }
  bool is_lost(std::uint32_t rank) const { return news_.presence(rank) == Presence::lost; }
  /// Sends queued frames, waits up to `milliseconds` for events, and handles them. If the start has
  /// failed, here or at another rank, returns the failure.
  Status drive(int milliseconds);
  /// Records that a rank was lost, and informs all neighbours except `from`. ControlJoin calls this
  /// if a rank has ended before it was connected to this rank.
  void declare_lost(std::uint32_t rank, std::string_view how, const ControlLink* from = nullptr);
  /// Sends the failure of the start to the neighbours, as far as is possible without blocking. The
  /// neighbours flood it.
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
  /// Reads a link once, and handles the frames that have arrived. True if more may have arrived. If
  /// the connection has ended, ends the link. The reported reason is `how` or, if `how` is empty,
  /// the error of reading.
  bool receive(ControlLink& link, std::string_view how = {});
  /// Ends a link whose peer has closed the connection or ended. First handles the frames that the
  /// peer had sent, since they may contain its LeftFrame.
  void drain_link(ControlLink& link, std::string_view how);
  Status handle_frame(ControlLink& link, const ControlFrame& frame);
  void declare_left(std::uint32_t rank, const ControlLink* from);
  void close(ControlLink& link);
  void link_ended(ControlLink& link, std::string_view how);
  void broadcast(const ControlFrame& frame, const ControlLink* except = nullptr);
  void send_outbox();
  void forward(const MessageFrame& message);
  void flush_links();
  void check_for_silence();
  Status exchange(BruckGather& gather, std::uint32_t number, Deadline deadline);
  Status wait_until_sent(Deadline deadline);
  Status handle_message(const ControlLink& link, const MessageFrame& message);
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
  /// When ControlLink::check_silence() is called next; max() if no link is remote.
  Clock::time_point next_silence_check_ = Clock::time_point::max();
  ControlNews news_;
  std::uint32_t sent_ = 0;  ///< Number of this rank's own last message.
  std::deque<Event> events_;
  Status failure_;  ///< Why the start failed; not used after the start.
  bool is_serving_ = false;
  bool has_left_ = false;
  GatherInbox gathers_;
  std::unique_ptr<PayloadConnections> payload_connections_;
};

}  // namespace xylem::runtime
