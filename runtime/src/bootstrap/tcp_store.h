// SPDX-License-Identifier: Apache-2.0
//
// TcpStore: a rank's client of the store that rank 0 serves. Rank 0 uses a TcpStore, too, which
// also owns the server.
#pragma once

#include "bootstrap/launcher.h"
#include "bootstrap/socket_address.h"
#include "bootstrap/start_store.h"
#include "bootstrap/tcp_store_protocol.h"
#include "bootstrap/tcp_store_server.h"
#include "rendezvous.h"
#include "xylem/base/clock.h"
#include "xylem/base/log.h"
#include "xylem/base/unique_fd.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace xylem::runtime {

/// Where the server listens, or may listen.
struct TcpStoreAddress {
  std::string host;
  std::vector<std::uint16_t> ports;  ///< Rank 0 serves on the first of these that is free.
  /// True if only this job may listen at the port. Then the start fails if a process that does not
  /// belong to the job answers there three times. False for derived ports, which other programs may
  /// use.
  bool is_reserved = true;
};

class TcpStore final : public StartStore {
 public:
  static Result<std::shared_ptr<Store>> open(const TcpStoreAddress& address,
                                             const Placement& placement,
                                             const Logger& logger,
                                             Deadline deadline);
  TcpStore(UniqueFd fd, std::unique_ptr<TcpStoreServer> server) noexcept
      : server_(std::move(server)), fd_(std::move(fd)) {}
  TcpStore(const TcpStore&) = delete;
  TcpStore& operator=(const TcpStore&) = delete;
  ~TcpStore() override;

  Status set(std::string_view key, std::span<const std::byte> value) override;
  Result<std::vector<std::byte>> get(std::string_view key, Deadline deadline) override;
  Result<std::vector<std::byte>> set_and_get(std::string_view key,
                                             std::span<const std::byte> value,
                                             std::string_view wanted,
                                             Deadline deadline) override;
  int fd() const noexcept override { return fd_.get(); }
  Status verdict() override;
  Status abandon(const Status& why) override;

 private:
  /// Sends requests. Does not report an error: the server's last reply may have arrived, and
  /// receive_reply() reads it or reports the error.
  void ask(ByteSpan requests) noexcept;
  /// Waits for the reply to the last `get` request.
  Result<std::vector<std::byte>> value(Deadline deadline);
  /// Waits for the server's next reply. The verdict of the start, or the end of the server, is an
  /// error, which all later calls return, too.
  Result<StoreReply> receive_reply(Deadline deadline);

  std::unique_ptr<TcpStoreServer> server_;
  UniqueFd fd_;
  Status verdict_;
};

/// The ports to try for rank 0's server if none was set. They are derived from the job's identity
/// and are below the kernel's ephemeral ports. `avoid` is not among them.
std::vector<std::uint16_t> derived_ports(std::string_view job, std::uint16_t avoid);

}  // namespace xylem::runtime
