// SPDX-License-Identifier: Apache-2.0
//
// A rank with buffers in the memory of a CUDA device, over the driver libcuda.so.1. It makes all
// kinds of calls, and checks every element of their outputs.
//
//   cuda_rank HOST_RANK MOST
//
// The buffers of rank HOST_RANK are in host memory, and those of the other ranks on devices. If
// HOST_RANK is "none", all buffers are on devices. At most MOST cases of each operation are run.
// Prints "opened N". N is the number of allocations of other processes that this process has
// opened. The stand-in for the driver counts them.
#include "conformance/run_case.h"
#include "support/cuda_memory.h"
#include "xylem/xylem.h"

#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

namespace xylem::test {
namespace {

using collectives::Collective;

constexpr const char* kLibrary = "libcuda.so.1";
constexpr std::size_t kBytes = std::size_t{32} << 20;

/// A rank and its buffers, which are in device memory if there is a device, and otherwise in host
/// memory.
class Rank {
 public:
  Rank(const Communicator& world, std::unique_ptr<CudaMemory> memory, Memory kind)
      : world_(world), memory_(std::move(memory)), kind_(kind) {}

  /// Runs at most `most` cases of each operation. Returns what is wrong, or an empty string.
  std::string run(std::size_t most) {
    for (std::uint32_t i = 0; i < collectives::kCollectiveCount; ++i) {
      for (const Case& one : sample(static_cast<Collective>(i), world_.size(), most)) {
        if (std::string wrong = run(one); !wrong.empty()) return wrong;
      }
    }
    for (const std::uint64_t count : {0U, 1U, 20U, 5000U, 300'000U}) {
      if (std::string wrong = run_messages(count); !wrong.empty()) return wrong;
    }
    return {};
  }
  std::uint64_t cases() const noexcept { return cases_; }

 private:
  /// Runs a case. The case's number determines whether the call is ordered by a stream, and whether
  /// it states the kind of its memory.
  std::string run(const Case& one) {
    const std::uint64_t number = cases_++;
    if (memory_ == nullptr) return run_case(world_, one);
    const BuffersOnDevice there{*memory_, number / 2 % 2 == 0 ? kind_ : kFoundByCall};
    return run_case(number % 2 == 0 ? on_stream() : world_, one, &there);
  }
  Communicator on_stream() const { return world_.on({memory_->stream(), kind_}); }

  /// Sends a message to every rank, first to the next rank and last to itself.
  std::string run_messages(std::uint64_t count) {
    using Words = std::vector<std::uint32_t>;
    const std::uint32_t ranks = world_.size(), rank = world_.rank();
    const std::uint64_t bytes = count * sizeof(std::uint32_t);
    const auto words_of = [&](std::uint32_t from, std::uint32_t to) {
      Words words(count);
      std::iota(words.begin(), words.end(), 1000 * from + to);
      return words;
    };
    for (std::uint32_t shift = 1; shift <= ranks; ++shift) {
      const std::uint32_t to = (rank + shift) % ranks, from = (rank + ranks - shift) % ranks;
      Words sent = words_of(rank, to), received(count);
      void *input = sent.data(), *output = received.data();
      if (memory_ != nullptr) {
        input = memory_->allocate(bytes);
        output = memory_->allocate(bytes);
        memory_->write(static_cast<std::byte*>(input), sent.data(), bytes);
      }
      const bool has_stream = memory_ != nullptr && shift % 2 == 0;
      const Communicator comm = has_stream ? on_stream() : world_;
      const Work send = comm.send(Buffer(input, count, DataType::uint32), to, shift);
      const Work receive = comm.recv(Buffer(output, count, DataType::uint32), from, shift);
      const Status status = wait_all(send, receive);
      if (memory_ != nullptr) {
        memory_->read(received.data(), static_cast<std::byte*>(output), bytes);
        memory_->clear();
      }
      const std::string which = std::to_string(count) + " words from rank " + std::to_string(from) +
                                " to rank " + std::to_string(rank);
      if (!status) return which + ": " + status.to_string();
      if (received != words_of(from, rank)) return which + " are wrong";
    }
    return {};
  }

  const Communicator world_;
  const std::unique_ptr<CudaMemory> memory_;
  const Memory kind_;
  std::uint64_t cases_ = 0;
};

/// Calls a function of the stand-in. Returns 0 with the driver of a GPU.
unsigned long ask(const char* function, const char* argument = nullptr) {
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_NOLOAD);
  void* const found = library == nullptr ? nullptr : ::dlsym(library, function);
  if (found == nullptr) return 0;
  if (argument == nullptr) return reinterpret_cast<unsigned long (*)()>(found)();
  return reinterpret_cast<unsigned long (*)(const char*)>(found)(argument);
}

int fail(std::uint32_t rank, const std::string& what) {
  std::printf("rank %u: %s\n", rank, what.c_str());
  return 1;
}

int run(int argc, char** argv) {
  if (argc != 3) return fail(0, "usage: cuda_rank HOST_RANK MOST");
  auto runtime = Runtime::create();
  if (!runtime) return fail(0, runtime.status().to_string());
  const auto world = runtime->world();
  const std::uint32_t rank = runtime->rank();
  std::unique_ptr<CudaMemory> memory;
  Memory kind;
  if (std::to_string(rank) != argv[1]) {
    auto driver = execution::cuda::Driver::open(kLibrary);
    if (!driver) return fail(rank, driver.status().to_string());
    int devices = 0;
    (*driver)->cuDeviceGetCount(&devices);
    kind = {MemoryKind::cuda, static_cast<std::int32_t>(rank) % devices};
    memory = std::make_unique<CudaMemory>(*driver, kind.device, kBytes);
  }
  Rank own(world, std::move(memory), kind);
  if (const std::string wrong = own.run(std::strtoul(argv[2], nullptr, 10)); !wrong.empty()) {
    return fail(rank, wrong);
  }
  if (const Status met = world.barrier().wait(); !met) return fail(rank, met.to_string());
  if (ask("fake_cuda_misuses") != 0) return fail(rank, "misuse of the driver");
  std::printf("%llu cases, opened %lu\n", static_cast<unsigned long long>(own.cases()),
              ask("fake_cuda_calls", "cuIpcOpenMemHandle_v2"));
  return 0;
}

}  // namespace
}  // namespace xylem::test

int main(int argc, char** argv) { return xylem::test::run(argc, argv); }
