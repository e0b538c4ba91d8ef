// SPDX-License-Identifier: Apache-2.0
//
// One of two ranks whose driver fails. The ranks run the same short program of calls on device
// memory many times. In each run, one call of one function of the stand-in for the CUDA driver
// fails in one of the two processes.
//
//   cuda_fault_rank VICTIM CODE CALLS DIRECTORY
//
// CALLS lists the numbers of the failing calls of each function, such as "1,2,5". CODE is the error
// that they return. After each run, the ranks must have correct results or an error, and the
// streams must have continued. Prints the first error of each run, and at the end the functions
// that the victim did not call.
#include "process/cuda_bench.h"
#include "xylem/xylem.h"

#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace xylem::test {
namespace {

constexpr std::uint64_t kCount = 50'000;
constexpr std::uint64_t kBytes = kCount * sizeof(std::uint32_t);

// These are the names that the driver's library exports. The header defines macros that rename some
// functions to newer versions.
#define XYLEM_TEXT_OF(name) #name
#define XYLEM_CUDA(name) XYLEM_TEXT_OF(name),
constexpr const char* kFunctions[] = {
#include "cuda/blocking_functions.inc"
#include "cuda/driver_functions.inc"
};
#undef XYLEM_CUDA
#undef XYLEM_TEXT_OF

/// The program of one run.
class Program {
 public:
  explicit Program(const Runtime& runtime)
      : rank_(runtime.rank()), bench_(static_cast<int>(rank_), kCount), world_(runtime.world()) {}

  /// Returns the first error of a call. If something is wrong, wrong() describes it.
  Status run() {
    auto part = world_.duplicate();
    if (!part) return part.status();
    part_ = std::move(*part);
    for (const auto step :
         {&Program::reduce_own_memory, &Program::reduce_on_stream, &Program::reduce_on_stream,
          &Program::gather_behind, &Program::pass_on_stream, &Program::pass_little,
          &Program::broadcast_to_host, &Program::bind, &Program::reduce_on_stream,
          &Program::reduce_on_stream, &Program::gather_behind, &Program::reduce_scaled}) {
      const Status status = (this->*step)();
      // The stream must continue, whatever has failed.
      if (bench_.wait() == CudaBench::State::stalled) wrong_ = "the stream does not go on";
      if (!wrong_.empty()) return {};
      if (status) continue;
      give_up(status);
      return status;
    }
    return {};
  }
  const std::string& wrong() const noexcept { return wrong_; }
  /// Whether the call that was made last may hold its buffers after an error.
  bool may_hold_buffers() const noexcept { return is_on_mesh_; }

 private:
  /// Aborts the communicators after an error, so that peers do not wait for this rank.
  void give_up(const Status& why) {
    (void)part_.abort(why.message());
    (void)world_.abort(why.message());
  }
  std::uint32_t value(std::uint32_t rank, std::uint64_t i) const {
    return static_cast<std::uint32_t>(1000 * number_ + 7 * i + rank);
  }
  void fill() {
    ++number_;
    for (std::uint64_t i = 0; i < kCount; ++i) bench_.before()[i] = value(rank_, i);
  }
  Buffer of(void* memory, std::uint64_t count = kCount) const {
    return {memory, count, DataType::uint32, bench_.kind()};
  }
  /// Checks the words that the stream has copied to the host. A lost device has copied nothing.
  template <typename Expected>
  void check(std::uint64_t count, const Expected& expected, const char* what) {
    const auto state = bench_.wait();
    if (state == CudaBench::State::stalled) wrong_ = "the stream does not go on";
    if (state != CudaBench::State::done) return;
    for (std::uint64_t i = 0; i < count; ++i) {
      if (bench_.after()[i] == expected(i)) continue;
      wrong_ = std::string(what) + ": element " + std::to_string(i) + " is " +
               std::to_string(bench_.after()[i]) + ", not " + std::to_string(expected(i));
      return;
    }
  }
  std::uint32_t sum(std::uint64_t i) const { return value(0, i) + value(1, i); }

  /// Uses memory of xylem::allocate(). The call does not state its kind.
  Status reduce_own_memory() {
    XYLEM_TRY(auto allocation, allocate(kBytes, bench_.kind()));
    fill();
    bench_.produce(allocation.data(), kCount);
    if (bench_.wait() != CudaBench::State::done) return {};
    const Buffer buffer(allocation.data(), kCount, DataType::uint32);
    XYLEM_TRY(world_.all_reduce(buffer, buffer).wait());
    bench_.consume(buffer.data, kCount);
    check(
        kCount, [&](std::uint64_t i) { return sum(i); }, "all_reduce");
    return deallocate(allocation.release());
  }
  /// Binds the devices. From here on, devices carry out the calls on streams.
  Status bind() {
    XYLEM_TRY(auto made, world_.duplicate());
    part_ = std::move(made);
    return part_.bind(bench_.kind()).status();
  }
  Status reduce_on_stream() {
    is_on_mesh_ = part_.binding() == Binding::mesh;
    fill();
    bench_.produce(bench_.input(), kCount);
    const auto on_stream = part_.on(bench_.stream());
    const Work work = on_stream.all_reduce(of(bench_.input()), of(bench_.output()));
    bench_.consume(bench_.output(), kCount);
    XYLEM_TRY(work.wait());
    check(
        kCount, [&](std::uint64_t i) { return sum(i); }, "all_reduce on a stream");
    is_on_mesh_ = false;
    return {};
  }
  Status gather_behind() {
    is_on_mesh_ = part_.binding() == Binding::mesh;
    fill();
    bench_.produce(bench_.input(), kCount);
    const auto after = part_.after(bench_.stream());
    const Work work = after.all_gather(of(bench_.input()), of(bench_.output(), 2 * kCount));
    const Status blocks = work.block(bench_.stream());
    if (blocks) bench_.consume(bench_.output(), 2 * kCount);
    XYLEM_TRY(work.wait());
    XYLEM_TRY(blocks);
    is_on_mesh_ = false;
    const auto expected = [&](std::uint64_t i) {
      return value(static_cast<std::uint32_t>(i / kCount), i % kCount);
    };
    check(2 * kCount, expected, "all_gather");
    return {};
  }
  Status pass(const Communicator& comm, std::uint64_t count, Memory where) {
    const Work send = comm.send({bench_.input(), count, DataType::uint32, where}, 1 - rank_);
    const Work receive = comm.recv({bench_.output(), count, DataType::uint32, where}, 1 - rank_);
    bench_.consume(bench_.output(), count);
    XYLEM_TRY(wait_all(send, receive));
    return {};
  }
  void check_passed(std::uint64_t count) {
    check(
        count, [&](std::uint64_t i) { return value(1 - rank_, i); }, "a message");
  }
  Status pass_on_stream() {
    fill();
    bench_.produce(bench_.input(), kCount);
    XYLEM_TRY(pass(world_.on(bench_.stream()), kCount, bench_.kind()));
    check_passed(kCount);
    return {};
  }
  /// Without a stream. The call does not state the kind of its memory.
  Status pass_little() {
    constexpr std::uint64_t kFew = 10;
    fill();
    bench_.produce(bench_.input(), kCount);
    if (bench_.wait() != CudaBench::State::done) return {};
    XYLEM_TRY(pass(world_, kFew, kFoundByCall));
    bench_.consume(bench_.output(), kFew);
    check_passed(kFew);
    return {};
  }
  /// Each rank in turn is the root. The root's buffer is in device memory, and the other rank's
  /// buffer in host memory.
  Status broadcast_to_host() {
    for (const std::uint32_t root : {0U, 1U}) {
      fill();
      bench_.produce(bench_.input(), kCount);
      if (bench_.wait() != CudaBench::State::done) return {};
      std::vector<std::uint32_t> words(kCount);
      const Buffer buffer =
          rank_ == root ? of(bench_.input()) : Buffer(words.data(), kCount, DataType::uint32);
      XYLEM_TRY(world_.broadcast(buffer, root).wait());
      for (std::uint64_t i = 0; rank_ != root && i < kCount; ++i) {
        if (words[i] != value(root, i)) wrong_ = "broadcast: element " + std::to_string(i);
      }
    }
    return {};
  }
  Status reduce_scaled() {
    ++number_;
    auto* const floats = reinterpret_cast<float*>(bench_.before());
    for (std::uint64_t i = 0; i < kCount; ++i) floats[i] = static_cast<float>(i % 1000 + rank_);
    bench_.produce(bench_.input(), kCount);
    if (bench_.wait() != CudaBench::State::done) return {};
    const Buffer input(bench_.input(), kCount, DataType::float32, bench_.kind());
    const Buffer output(bench_.output(), kCount, DataType::float32, bench_.kind());
    XYLEM_TRY(world_.all_reduce(input, output, ReduceOp::premul_sum(rank_ == 0 ? 2 : 4)).wait());
    bench_.consume(bench_.output(), kCount);
    const auto expected = [](std::uint64_t i) {
      const auto x = static_cast<float>(i % 1000);
      return std::bit_cast<std::uint32_t>(2 * x + 4 * (x + 1));
    };
    check(kCount, expected, "premul_sum");
    return {};
  }

  const std::uint32_t rank_;
  CudaBench bench_;
  Communicator world_, part_;
  std::string wrong_;
  std::uint32_t number_ = 0;
  bool is_on_mesh_ = false;
};

struct Outcome {
  Status status;
  std::string wrong;
};

Outcome run_once() {
  auto runtime = Runtime::create();
  if (!runtime) return {{}, "start: " + runtime.status().to_string()};
  Outcome outcome;
  bool may_hold = false;
  {
    Program program(*runtime);
    outcome.status = program.run();
    outcome.wrong = program.wrong();
    may_hold = program.may_hold_buffers();
  }
  // The calls are correct and both ranks make them, so these errors must not occur.
  if (outcome.status.code() == Code::timed_out || outcome.status.code() == Code::mismatch ||
      outcome.status.code() == Code::invalid_argument ||
      (outcome.status.holds_buffers() && !may_hold)) {
    outcome.wrong = outcome.status.to_string();
  }
  if (!outcome.status && outcome.status.message().empty()) outcome.wrong = "an error without text";
  return outcome;
}

/// Describes incorrect use of the driver by this process, or is empty. One misuse is allowed after
/// an error: the other rank has freed memory that this rank then opens.
std::string misuse(bool has_error) {
  if (StandIn::get().misuses() == 0) return {};
  const std::string last = StandIn::get().last_misuse();
  return has_error && last == "cuIpcOpenMemHandle_v2: the memory is gone" ? std::string() : last;
}

int run(int argc, char** argv) {
  if (argc != 5) return 2;
  const bool is_victim = std::string(std::getenv("XYLEM_RANK")) == argv[1];
  const std::string code = argv[2], directory = argv[4];
  std::vector<unsigned long> numbers;
  std::istringstream items(argv[3]);
  for (std::string item; std::getline(items, item, ',');) numbers.push_back(std::stoul(item));
  std::map<std::string, unsigned> messages;
  unsigned runs = 0, failed = 0, wrong = 0;
  for (const char* const function : kFunctions) {
    for (const unsigned long number : numbers) {
      const std::string fault = std::string(function) + ":" + std::to_string(number) + "=" + code;
      ::setenv("FAKE_CUDA_FAULTS", is_victim ? fault.c_str() : "", 1);
      ::setenv("XYLEM_JOB", (directory + std::to_string(runs)).c_str(), 1);
      StandIn::get().reset();
      Outcome outcome = run_once();
      ++runs;
      failed += outcome.status ? 0 : 1;
      if (!outcome.status) ++messages[outcome.status.to_string()];
      if (outcome.wrong.empty()) outcome.wrong = misuse(!outcome.status);
      if (!outcome.wrong.empty()) {
        ++wrong;
        std::printf("WRONG %s: %s\n", fault.c_str(), outcome.wrong.c_str());
      }
      const bool is_called = StandIn::get().calls(function) >= numbers.front();
      if (number == numbers.front() && !is_called) std::printf("not called: %s\n", function);
    }
  }
  for (const auto& [message, times] : messages) std::printf("%ux %s\n", times, message.c_str());
  std::printf("%u runs, %u with an error, %u wrong\n", runs, failed, wrong);
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace xylem::test

int main(int argc, char** argv) { return xylem::test::run(argc, argv); }
