// SPDX-License-Identifier: Apache-2.0
//
// The transports on which the contract is tested, and a fixture with two transports that are
// connected in both directions.
#pragma once

#include "support/outcome.h"
#include "unit/tcp_connections.h"
#include "unit/transport_fixture.h"
#include "xylem/transport/loopback.h"
#include "xylem/transport/shm.h"
#include "xylem/transport/tcp.h"
#include "xylem/transport/transport.h"
#include "xylem/transport/ucx.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

namespace xylem::transport::testing {

/// One transport under test, with its options.
struct Subject {
  enum class Kind : std::uint8_t { loopback, shm, tcp, ucx_tcp };
  Kind kind = Kind::loopback;
  std::uint64_t seed = 0;  ///< Only for loopback.
  Protection protection = Protection::auth;
  Cipher cipher = Cipher::chacha20_poly1305;

  std::string label() const {
    switch (kind) {
      case Kind::loopback: return "loopback_seed" + std::to_string(seed);
      case Kind::shm: return "shm";
      case Kind::tcp: return tcp_label();
      case Kind::ucx_tcp: return "ucx_tcp";
    }
    return "unknown";
  }
  std::string tcp_label() const {
    if (protection == Protection::off) return "tcp_off";
    const std::string cipher_name = cipher == Cipher::aes256_gcm ? "_aes" : "_chacha";
    return (protection == Protection::auth ? "tcp_auth" : "tcp_encrypt") + cipher_name;
  }
  friend void PrintTo(const Subject& subject, std::ostream* out) { *out << subject.label(); }
};

inline std::string label_of(const ::testing::TestParamInfo<Subject>& row) {
  return row.param.label();
}

inline std::vector<Subject> all_subjects() {
  using Kind = Subject::Kind;
  std::vector<Subject> subjects{{Kind::loopback, 0}, {Kind::loopback, 1}, {Kind::loopback, 2},
                                {Kind::loopback, 3}, {Kind::shm},         {Kind::ucx_tcp}};
  subjects.push_back({.kind = Kind::tcp, .protection = Protection::off});
  for (const Protection protection : {Protection::auth, Protection::encrypt}) {
    for (const Cipher cipher : {Cipher::aes256_gcm, Cipher::chacha20_poly1305}) {
      if (cipher == Cipher::aes256_gcm && !has_aes()) continue;
      subjects.push_back({.kind = Kind::tcp, .protection = protection, .cipher = cipher});
    }
  }
  return subjects;
}

/// Two transports `a` and `b` of the subject under test. `to_b` and `to_a` are their endpoints.
class TransportPair : public ::testing::TestWithParam<Subject> {
 protected:
  void SetUp() override {
    fabric = std::make_unique<LoopbackFabric>(LoopbackOptions{.seed = GetParam().seed});
    a = make();
    b = make();
    to_b = join(*a, *b);
    to_a = join(*b, *a);
  }

  void TearDown() override {
    if (a) a->close(to_b);
    if (b) b->close(to_a);
    if (a) a->progress();
    if (b) b->progress();
  }

  std::unique_ptr<Transport> make() const {
    UcxOptions options;
    options.reach = UcxReach::tcp;
    switch (GetParam().kind) {
      case Subject::Kind::loopback: return fabric->attach();
      case Subject::Kind::shm: return value_of(make_shm({.endpoints = 4}));
      case Subject::Kind::tcp: return value_of(make_tcp({}));
      default: return value_of(make_ucx(options, Logger()));
    }
  }

  /// Creates an endpoint. Over tcp, each endpoint has its own connection, and at the other end of
  /// the connection there is an endpoint, too.
  static EndpointId join(Transport& from, Transport& to) {
    const EndpointId endpoint = value_of(from.connect(to.address()));
    if (GetParam().kind == Subject::Kind::tcp) {
      const EndpointId back = value_of(to.connect(from.address()));
      auto ends = connected_pair(GetParam().protection, GetParam().cipher);
      EXPECT_TRUE(from.connections()->adopt(endpoint, std::move(ends.first)));
      EXPECT_TRUE(to.connections()->adopt(back, std::move(ends.second)));
    }
    return endpoint;
  }

  bool both_drive(auto condition) { return drive({a.get(), b.get()}, condition); }
  bool both_end(const auto&... operations) {
    return both_drive([&] { return ended(operations...); });
  }
  void both_progress(int times) {
    for (int i = 0; i < times; ++i) {
      a->progress();
      b->progress();
    }
  }

  std::unique_ptr<LoopbackFabric> fabric;
  std::unique_ptr<Transport> a;
  std::unique_ptr<Transport> b;
  EndpointId to_b = 0;
  EndpointId to_a = 0;
};

}  // namespace xylem::transport::testing
