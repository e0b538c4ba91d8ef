// SPDX-License-Identifier: Apache-2.0
//
// Timing and checking of calls.
#include "bench/measure.h"

#include "bench/agreement.h"
#include "bench/bandwidth.h"
#include "xylem/base/clock.h"
#include "xylem/base/copy.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>
#include <vector>

namespace xylem::tools {
namespace {

/// The time for the timed calls of a row, unless their number is given.
constexpr std::chrono::milliseconds kRowTime{200};
constexpr std::uint64_t kFewestCalls = 5;
constexpr std::uint32_t kCopyRounds = 9;
constexpr std::uint64_t kMostCalls = 20000;

double microseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

std::uint32_t default_warmup(Bytes size) {
  constexpr std::uint64_t kSmall = 64 * 1024;
  constexpr std::uint32_t kSmallCalls = 20;
  constexpr std::uint32_t kLargeCalls = 3;
  return size.value <= kSmall ? kSmallCalls : kLargeCalls;
}

/// The number of ranks that left the barrier before the last rank entered it. On several hosts the
/// clocks cannot be compared, and the result is 0.
Result<std::uint64_t> check_barrier(const Call& call, const Ranks& ranks) {
  const double entered = microseconds(Clock::now().time_since_epoch());
  XYLEM_TRY(call());
  const double left = microseconds(Clock::now().time_since_epoch());
  XYLEM_TRY(const auto last, maximum_of(ranks.control, {entered}));
  return sum_of(ranks.control, ranks.one_host && left < last.front() ? 1 : 0);
}

Result<std::uint64_t> check(const Call& call, const Communicator& control) {
  XYLEM_TRY(call.prepare());
  XYLEM_TRY(call());
  XYLEM_TRY(const std::uint64_t wrong, call.count_wrong());
  return sum_of(control, wrong);
}

/// Times one call, made after a barrier.
template <typename Call>
Result<double> time_one(const Call& call, const Communicator& control) {
  XYLEM_TRY(control.barrier().wait());
  const auto start = Clock::now();
  XYLEM_TRY(call());
  return microseconds(Clock::now() - start);
}

/// Times calls in batches of doubling size. After each batch, rank 0 decides for all ranks whether
/// to continue. So there are few such decisions, and no row takes much longer than kRowTime.
template <typename Call>
Result<std::vector<double>> time_each(const Call& call,
                                      std::optional<std::uint32_t> iterations,
                                      const Communicator& control) {
  std::vector<double> times;
  const auto deadline = Deadline::after(kRowTime);
  std::uint64_t batch = iterations.value_or(1);
  while (batch > 0) {
    for (std::uint64_t i = 0; i < batch; ++i) {
      XYLEM_TRY(const double time, time_one(call, control));
      times.push_back(time);
    }
    if (iterations) break;
    std::uint64_t next = std::min<std::uint64_t>(times.size(), kMostCalls - times.size());
    if (deadline.passed()) next = times.size() < kFewestCalls ? kFewestCalls - times.size() : 0;
    XYLEM_TRY(batch, from_first(control, next));
  }
  return maximum_of(control, std::move(times));
}

Result<double> time_batch(const Call& call, std::uint64_t batch, const Communicator& control) {
  XYLEM_TRY(control.barrier().wait());
  const auto start = Clock::now();
  for (std::uint64_t i = 0; i < batch; ++i) {
    XYLEM_TRY(call.begin());
  }
  XYLEM_TRY(call.finish());
  const double mean = microseconds(Clock::now() - start) / static_cast<double>(batch);
  XYLEM_TRY(const auto slowest, maximum_of(control, {mean}));
  return slowest.front();
}

/// Mean time of consecutive calls, as nccl-tests measures it. If their number is not given, it is
/// chosen by timing a short batch.
Result<Measurement> time_back_to_back(const Call& call,
                                      const BenchOptions& options,
                                      const Communicator& control) {
  Measurement result;
  if (options.iterations) {
    result.iterations = *options.iterations;
  } else {
    XYLEM_TRY(const double estimate, time_batch(call, kFewestCalls, control));
    const double fitting = microseconds(kRowTime) / std::max(estimate, 1e-3);
    result.iterations =
        static_cast<std::uint64_t>(std::clamp(fitting, double{kFewestCalls}, double{kMostCalls}));
  }
  XYLEM_TRY(const double mean, time_batch(call, result.iterations, control));
  result.microseconds = {mean, mean, mean};
  return result;
}

Result<Measurement> time_row(const Call& call,
                             const BenchOptions& options,
                             const Communicator& control) {
  if (options.back_to_back) return time_back_to_back(call, options, control);
  XYLEM_TRY(auto times, time_each(call, options.iterations, control));
  Measurement result;
  result.iterations = times.size();
  result.microseconds = summarize(std::move(times));
  return result;
}

}  // namespace

Result<Measurement> measure(const Call& call,
                            Operation operation,
                            Bytes size,
                            const BenchOptions& options,
                            const Ranks& ranks) {
  const auto check_call = [&]() -> Result<std::uint64_t> {
    if (!options.check) return std::uint64_t{0};
    return operation == Operation::barrier ? check_barrier(call, ranks)
                                           : check(call, ranks.control);
  };
  XYLEM_TRY(call.prepare());
  XYLEM_TRY(const std::uint64_t wrong_before, check_call());
  for (std::uint32_t i = options.warmup.value_or(default_warmup(size)); i > 0; --i) {
    XYLEM_TRY(call());
  }
  XYLEM_TRY(Measurement row, time_row(call, options, ranks.control));
  for (double* time : {&row.microseconds.min, &row.microseconds.p50, &row.microseconds.p99}) {
    *time /= traits(operation).messages;
  }
  XYLEM_TRY(const std::uint64_t wrong_after, check_call());
  row.wrong = wrong_before + wrong_after;
  return row;
}

Result<Copies> Copies::create() {
  Copies copies;
  XYLEM_TRY(copies.from_, PageBuffer::allocate(kBytes.value));
  XYLEM_TRY(copies.to_, PageBuffer::allocate(kBytes.value));
  return copies;
}

void Copies::copy() const { copy_non_temporal(to_.data(), from_.data(), kBytes.value); }

Result<GBps> measure_copies(const Copies& copies, const Communicator& control) {
  const auto now = [] { return microseconds(Clock::now().time_since_epoch()); };
  // The time runs from the first start to the last end, since ranks that share a core copy one
  // after the other.
  std::vector<double> earliness, ends;  // Starts are negated, so that the maximum is the earliest.
  for (std::uint32_t i = 0; i < kCopyRounds; ++i) {
    XYLEM_TRY(control.barrier().wait());
    earliness.push_back(-now());
    copies.copy();
    ends.push_back(now());
  }
  XYLEM_TRY(earliness, maximum_of(control, std::move(earliness)));
  XYLEM_TRY(auto times, maximum_of(control, std::move(ends)));
  std::ranges::transform(times, earliness, times.begin(), std::plus());
  return algorithm_bandwidth({Copies::kBytes.value * control.size()},
                             summarize(std::move(times)).p50);
}

}  // namespace xylem::tools
