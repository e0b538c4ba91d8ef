// SPDX-License-Identifier: Apache-2.0
//
// HeaderReceiver: posts header slots, and receives the headers of a group's messages into them. It
// passes the headers of each sender to its client in the order in which they were sent. Only the
// token holder may use it.
#pragma once

#include "groups/group_control.h"
#include "groups/group_spec.h"
#include "groups/header_pool.h"
#include "xylem/execution/link.h"
#include "xylem/transport/transport.h"
#include "xylem/transport/views.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace xylem::runtime {

class HeaderReceiver final : private HeaderOwner {
 public:
  /// Handles headers that have been received.
  class Client {
   public:
    /// The next header in order from its source, with the payload of a small message.
    virtual void accept(const MessageHeader& header, const std::byte* payload) = 0;
    /// True while slots must not be posted, since too many bytes of messages wait for their
    /// receives.
    virtual bool is_full() const noexcept = 0;

   protected:
    ~Client() = default;
  };

  /// The arguments outlive this object.
  HeaderReceiver(Client& client,
                 GroupControl& group,
                 const GroupSpec& spec,
                 const execution::Peers& peers,
                 HeaderPool& pool)
      : client_(client), group_(group), spec_(spec), peers_(peers), pool_(pool) {}

  /// Call this before the first message.
  void open() { sources_.resize(spec_.size()); }
  /// Posts slots on the transport over which messages from rank `peer` of the group arrive, unless
  /// slots are posted there already. If `peer` is kNone, does this for all ranks. Precondition: the
  /// links to these ranks are known.
  void post_slots(std::uint32_t peer);
  /// Posts again the slots that were left unposted because the client was full.
  void wake_slots();
  /// The header of a message that was found in shared memory, if the message is well-formed, is the
  /// next one expected from `source`, and is no note.
  std::optional<MessageHeader> next_of(const transport::View& message,
                                       std::uint32_t source) const noexcept;
  /// Call this when the caller has handled a message of `source` that next_of() has returned.
  void skip(std::uint32_t source) noexcept { ++sources_[source].expected; }
  /// Whether a header from `source` has arrived before an earlier one, and waits for it.
  bool has_early(std::uint32_t source) const noexcept { return !sources_[source].early.empty(); }
  /// Copies a message to a slot and releases its view. The message is then handled as if it had
  /// been received into a posted slot.
  void keep(const transport::View& view, const execution::Link& link);
  /// Posts a receive of 0 bytes for a body with this tag, so that the transport drops the body.
  void drop_body(transport::Transport& transport, transport::Tag tag);
  /// Cancels the posted slots and returns the others to the pool. Call this before the group ends.
  void close() noexcept;

 private:
  /// Number of header slots that are posted on each transport.
  static constexpr std::size_t kPostedSlots = 8;

  struct Source {
    std::uint32_t expected = 0;      ///< Number of the next header from this rank.
    std::vector<HeaderSlot*> early;  ///< Headers that have arrived before their predecessors.
  };

  void on_header(HeaderSlot& slot) override;
  void on_bad_slot(HeaderSlot& slot);
  void accept(const HeaderSlot& slot);
  HeaderSlot& take_slot(transport::Transport& transport);
  void add_slot(transport::Transport& transport);
  void post_slot(HeaderSlot& slot);
  void drop(HeaderSlot& slot) noexcept;

  Client& client_;
  GroupControl& group_;
  const GroupSpec& spec_;
  const execution::Peers& peers_;
  HeaderPool& pool_;
  std::vector<Source> sources_;
  std::vector<transport::Transport*> posted_;  ///< The transports on which slots are posted.
  std::vector<HeaderSlot*> slots_;
  /// The elements of `slots_` that are not posted, since the client was full.
  std::vector<HeaderSlot*> resting_;
  bool is_closed_ = false;
};

}  // namespace xylem::runtime
