// SPDX-License-Identifier: Apache-2.0
//
// The cost of one message on each transport: two transports in one process are driven by a single
// thread, so the result includes neither the time of the scheduler nor that of transfers between
// cores. Latency is half a round trip.
#include "xylem/transport/loopback.h"
#include "xylem/transport/transport.h"
#include "xylem/transport/ucx.h"

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace xylem::transport {
namespace {

struct Pair {
  std::unique_ptr<Transport> a;
  std::unique_ptr<Transport> b;
  EndpointId to_b = 0;
  EndpointId to_a = 0;
};

Result<Pair> connect(std::unique_ptr<Transport> a, std::unique_ptr<Transport> b) {
  XYLEM_TRY(const auto to_b, a->connect(b->address()));
  XYLEM_TRY(const auto to_a, b->connect(a->address()));
  return Pair{std::move(a), std::move(b), to_b, to_a};
}

Result<Pair> loopback_pair() {
  LoopbackFabric fabric;
  return connect(fabric.attach(), fabric.attach());
}

Result<Pair> ucx_tcp_pair() {
  UcxOptions options;
  options.reach = UcxReach::tcp;
  XYLEM_TRY(auto a, make_ucx(options, Logger()));
  XYLEM_TRY(auto b, make_ucx(options, Logger()));
  return connect(std::move(a), std::move(b));
}

struct Counted : Operation {
  Counted() {
    done = [](Operation& self) noexcept { static_cast<Counted&>(self).pending = false; };
  }
  bool pending = false;
};

void post_send(Transport& from, EndpointId to, const std::vector<std::byte>& data, Counted& op) {
  op.pending = from.send(to, 1, {data.data(), data.size(), {}}, op) == Posted::pending;
}

void post_recv(Transport& at, std::vector<std::byte>& data, Counted& op) {
  op.pending = at.recv(1, kExactMatch, {data.data(), data.size(), {}}, op) == Posted::pending;
}

void drive(const Pair& pair, const Counted& x, const Counted& y) {
  while (x.pending || y.pending) {
    pair.a->progress();
    pair.b->progress();
  }
}

void close(const Pair& pair) {
  pair.a->close(pair.to_b);
  pair.b->close(pair.to_a);
}

// With these flags, a counter of messages is shown as the time of one message.
const auto kSecondsEach = benchmark::Counter::kIsRate | benchmark::Counter::kInvert;

void ping_pong(benchmark::State& state, Result<Pair> (*make)()) {
  const auto pair = make();
  if (!pair) return state.SkipWithError(pair.status().to_string().c_str());
  const auto bytes = static_cast<std::size_t>(state.range(0));
  std::vector<std::byte> data[2] = {std::vector<std::byte>(bytes), std::vector<std::byte>(bytes)};
  Counted sent;
  Counted received;
  for ([[maybe_unused]] auto _ : state) {
    post_recv(*pair->b, data[1], received);
    post_send(*pair->a, pair->to_b, data[0], sent);
    drive(*pair, sent, received);
    post_recv(*pair->a, data[0], received);
    post_send(*pair->b, pair->to_a, data[1], sent);
    drive(*pair, sent, received);
  }
  state.counters["one_way"] =
      benchmark::Counter(static_cast<double>(2 * state.iterations()), kSecondsEach);
  close(*pair);
  state.SetBytesProcessed(state.iterations() * 2 * state.range(0));
}

// Sends eight messages in one direction at a time, like an engine that keeps several slices in
// flight.
void stream(benchmark::State& state, Result<Pair> (*make)()) {
  constexpr std::size_t kInFlight = 8;
  const auto pair = make();
  if (!pair) return state.SkipWithError(pair.status().to_string().c_str());
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const std::vector<std::byte> source(bytes);
  std::vector<std::vector<std::byte>> targets(kInFlight, std::vector<std::byte>(bytes));
  Counted sent[kInFlight];
  Counted received[kInFlight];
  for ([[maybe_unused]] auto _ : state) {
    for (std::size_t i = 0; i < kInFlight; ++i) post_recv(*pair->b, targets[i], received[i]);
    for (Counted& op : sent) post_send(*pair->a, pair->to_b, source, op);
    for (std::size_t i = 0; i < kInFlight; ++i) drive(*pair, sent[i], received[i]);
  }
  close(*pair);
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(kInFlight * bytes));
}

BENCHMARK_CAPTURE(ping_pong, loopback, loopback_pair)->Arg(8)->Arg(4096)->Arg(65536);
BENCHMARK_CAPTURE(ping_pong, ucx_tcp, ucx_tcp_pair)->Arg(8)->Arg(4096)->Arg(65536);
BENCHMARK_CAPTURE(stream, loopback, loopback_pair)->Arg(65536)->Arg(1 << 20)->Arg(8 << 20);
BENCHMARK_CAPTURE(stream, ucx_tcp, ucx_tcp_pair)->Arg(65536)->Arg(1 << 20)->Arg(8 << 20);

}  // namespace
}  // namespace xylem::transport

BENCHMARK_MAIN();
