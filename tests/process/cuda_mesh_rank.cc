// SPDX-License-Identifier: Apache-2.0
//
// A rank of a mesh whose ranks are processes, over the driver libcuda.so.1.
//
//   cuda_mesh_rank CALLS SEED
//   cuda_mesh_rank late FILE
//
// In the first form, it captures a call on a buffer that no call has used. Then it makes a random
// sequence of calls, which is the same on all ranks, and checks every element of their outputs. Up
// to six calls are in flight on two streams. Buffers are
// parts of one allocation, allocations of their own, which are freed and made again, and managed
// and mapped memory, which other processes cannot open. In the end, it repeats a call until its
// buffers are used in place.
//
// In the second form, FAKE_CUDA_OPEN_GATE is FILE. Rank 0 locks it, so that no rank can open memory
// of others. Calls on streams complete nevertheless.
#include "conformance/run_case.h"
#include "support/cuda_graph.h"
#include "support/cuda_memory.h"
#include "xylem/base/unique_fd.h"
#include "xylem/xylem.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace xylem::test {
namespace {

namespace cuda = execution::cuda;
using Random = std::mt19937_64;

constexpr const char* kLibrary = "libcuda.so.1";
constexpr std::size_t kBytes = std::size_t{16} << 20;
constexpr std::size_t kMostKept = 90;  ///< More than a rank of a mesh exports at a time.

class VariedMemory final : public BufferMemory {
 public:
  VariedMemory(std::shared_ptr<const cuda::Driver> driver, int device, std::uint64_t seed)
      : driver_(driver),
        large_(driver, device, kBytes),
        mapped_(std::move(driver), device, kBytes, CudaMemory::Kind::mapped),
        random_(seed) {}
  VariedMemory(const VariedMemory&) = delete;
  VariedMemory& operator=(const VariedMemory&) = delete;
  ~VariedMemory() override {
    clear();
    while (!kept_.empty()) free_one();
  }

  std::byte* allocate(std::size_t bytes) override {
    switch (random_() % 6) {
      case 0: {
        Own made{.bytes = bytes};
        const cuda::CurrentContext current(*driver_, large_.context());
        driver_->cuMemAllocManaged(&made.start, bytes + 1, CU_MEM_ATTACH_GLOBAL);
        used_.push_back(made);
        return cuda::pointer(made.start);
      }
      case 1: return mapped_.allocate(bytes);
      case 2:
      case 3: return allocate_own(bytes);
      default: return large_.allocate(bytes);
    }
  }
  void clear() noexcept override {
    large_.clear();
    mapped_.clear();
    for (const Own& own : used_) kept_.push_back(own);
    used_.clear();
    while (kept_.size() > kMostKept || (!kept_.empty() && random_() % 4 == 0)) free_one();
  }
  void write(std::byte* device, const void* source, std::size_t bytes) const override {
    large_.write(device, source, bytes);
  }
  void read(void* target, const std::byte* device, std::size_t bytes) const override {
    large_.read(target, device, bytes);
  }
  CUstream stream() const noexcept { return large_.stream(); }
  CUcontext context() const noexcept { return large_.context(); }

 private:
  struct Own {
    CUdeviceptr start = 0;
    std::size_t bytes = 0;
  };

  /// An allocation of its own, which may have been used by an earlier call.
  std::byte* allocate_own(std::size_t bytes) {
    const bool is_reused = !kept_.empty() && random_() % 2 == 0 && kept_.front().bytes >= bytes;
    Own own{.bytes = bytes};
    if (is_reused) {
      own = kept_.front();
      kept_.pop_front();
    } else {
      const cuda::CurrentContext current(*driver_, large_.context());
      driver_->cuMemAlloc(&own.start, bytes + 1);
    }
    used_.push_back(own);
    return cuda::pointer(own.start);
  }
  void free_one() {
    const cuda::CurrentContext current(*driver_, large_.context());
    driver_->blocking(cuda::MayWait{}).cuMemFree(kept_.front().start);
    kept_.pop_front();
  }

  const std::shared_ptr<const cuda::Driver> driver_;
  CudaMemory large_, mapped_;
  Random random_;
  std::vector<Own> used_;
  std::deque<Own> kept_;
};

int fail(std::uint32_t rank, const std::string& what) {
  std::printf("rank %u: %s\n", rank, what.c_str());
  return 1;
}

unsigned long misuses() {
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_NOLOAD);
  void* const found = library == nullptr ? nullptr : ::dlsym(library, "fake_cuda_misuses");
  return found == nullptr ? 0 : reinterpret_cast<unsigned long (*)()>(found)();
}

/// All cases of all operations.
std::vector<Case> all_cases(std::uint32_t ranks) {
  std::vector<Case> cases;
  for (std::uint32_t i = 0; i < collectives::kCollectiveCount; ++i) {
    const auto some = sample(static_cast<collectives::Collective>(i), ranks, 400);
    cases.insert(cases.end(), some.begin(), some.end());
  }
  return cases;
}

/// Makes random calls. Returns what is wrong, or an empty string.
std::string run_cases(const Communicator& world,
                      const Memory& kind,
                      VariedMemory& memory,
                      const CudaMemory& other,
                      std::uint64_t calls,
                      std::uint64_t seed) {
  const Communicator on_streams[] = {world.on({memory.stream(), kind}),
                                     world.on({other.stream(), kind})};
  const BuffersOnDevice there{memory, kind};
  const auto cases = all_cases(world.size());
  Random random(seed);
  for (std::uint64_t made = 0; made < calls;) {
    std::deque<RunningCase> running;
    for (std::uint64_t more = 1 + random() % 6; more > 0; --more, ++made) {
      Case one = cases[random() % cases.size()];
      // Only some ranks make the call in place.
      if (one.collective == collectives::Collective::all_to_all && !one.uneven) {
        one.in_place = random() % 2 == world.rank() % 2;
      }
      running.emplace_back(on_streams[random() % 2], one, &there);
    }
    for (RunningCase& each : running) {
      if (std::string wrong = each.finish(); !wrong.empty()) {
        return "call " + std::to_string(made) + ": " + wrong;
      }
    }
    memory.clear();
  }
  return {};
}

/// The words of one rank, in an allocation that no call has used.
class Words {
 public:
  static constexpr std::uint64_t kCount = 5000;

  Words(const std::shared_ptr<const cuda::Driver>& driver, const Memory& kind)
      : memory_(driver, kind.device, kCount * sizeof(std::uint32_t)),
        kind_(kind),
        start_(memory_.allocate(kCount * sizeof(std::uint32_t))) {}

  Words(const Words&) = delete;
  Words& operator=(const Words&) = delete;
  ~Words() = default;

  const CudaMemory& memory() const noexcept { return memory_; }
  Buffer buffer() const { return {start_, kCount, DataType::uint32, kind_}; }
  Stream stream() const { return {memory_.stream(), kind_}; }
  void write(std::uint32_t value) const {
    const std::vector<std::uint32_t> words(kCount, value);
    memory_.write(start_, words.data(), kCount * sizeof value);
  }
  bool are(std::uint32_t value) const {
    std::vector<std::uint32_t> words(kCount);
    memory_.read(words.data(), start_, kCount * sizeof value);
    return words == std::vector<std::uint32_t>(kCount, value);
  }

 private:
  CudaMemory memory_;
  const Memory kind_;
  std::byte* const start_;
};

/// Repeats calls on several buffers until no rank copies a buffer to staging memory.
std::string become_direct(const Runtime& runtime, const std::deque<Words>& buffers) {
  const auto world = runtime.world();
  for (;;) {
    const std::uint64_t before = runtime.counters().mesh_copied_bytes;
    for (const Words& words : buffers) {
      words.write(world.rank() + 1);
      const auto on_stream = world.on(words.stream());
      const Status summed = on_stream.all_reduce(words.buffer(), words.buffer()).wait();
      if (!summed) return summed.to_string();
      if (!words.are(world.size() * (world.size() + 1) / 2)) return "a wrong sum";
    }
    std::uint32_t is_copied = runtime.counters().mesh_copied_bytes == before ? 0 : 1;
    const Buffer flag(&is_copied, 1, DataType::uint32);
    if (const Status met = world.all_reduce(flag, flag).wait(); !met) return met.to_string();
    if (is_copied == 0) return {};
  }
}

/// Captures a call. Its buffer is used in place, although no call has used it before. The call is
/// made on a communicator of its own: as long as one with captured calls exists, its process closes
/// no memory of others.
std::string run_captured(const Runtime& runtime, const cuda::Driver& driver, const Words& words) {
  const auto made = runtime.world().duplicate();
  if (!made) return made.status().to_string();
  const Communicator& world = *made;
  if (!world.bind(words.stream().device)) return "bind() fails";
  const std::uint64_t before = runtime.counters().mesh_copied_bytes;
  Work work;
  const CudaGraph graph(driver, words.memory(), [&] {
    work = world.on(words.stream()).all_reduce(words.buffer(), words.buffer());
  });
  if (const Status ended = work.wait(); !ended) return "captured: " + ended.to_string();
  if (!work.is_captured()) return "nothing is captured";
  if (runtime.counters().mesh_copied_bytes != before) return "the captured call copies its buffer";
  for (std::uint32_t turn = 1; turn < 4; ++turn) {
    words.write(turn);
    graph.launch();
    if (!words.are(turn * world.size())) return "a wrong sum of a captured call";
  }
  const Status met = world.barrier().wait();
  return met ? "" : met.to_string();
}

std::string run_late(const Runtime& runtime, const std::deque<Words>& buffers, const char* file) {
  const Words& words = buffers.front();
  const auto world = runtime.world();
  const std::uint32_t rank = world.rank(), ranks = world.size();
  const UniqueFd gate(::open(file, O_RDONLY | O_CLOEXEC));
  const bool is_closed = rank != 0 || ::flock(gate.get(), LOCK_EX) == 0;
  if (gate.get() < 0 || !is_closed) return "the gate is missing";
  if (const Status met = world.barrier().wait(); !met) return met.to_string();
  words.write(1);
  std::vector<Work> works;
  std::uint32_t sum = 1;
  for (int i = 0; i < 5; ++i, sum *= ranks) {
    works.push_back(world.on(words.stream()).all_reduce(words.buffer(), words.buffer()));
  }
  // Reading waits for the stream alone, and not for the ends of the calls on the host.
  if (!words.are(sum)) return "a wrong sum";
  if (runtime.counters().mesh_copied_bytes == 0) return "nothing was copied";
  ::flock(gate.get(), LOCK_UN);
  for (const Work& work : works) {
    if (const Status ended = work.wait(); !ended) return ended.to_string();
  }
  return become_direct(runtime, buffers);
}

int run(int argc, char** argv) {
  if (argc != 3) return fail(0, "usage: cuda_mesh_rank CALLS SEED, or cuda_mesh_rank late FILE");
  const std::uint64_t calls = std::strtoull(argv[1], nullptr, 10);
  const std::uint64_t seed = std::strtoull(argv[2], nullptr, 10);
  auto runtime = Runtime::create();
  if (!runtime) return fail(0, runtime.status().to_string());
  const auto world = runtime->world();
  const std::uint32_t rank = runtime->rank();
  auto driver = cuda::Driver::open(kLibrary);
  if (!driver) return fail(rank, driver.status().to_string());
  int devices = 0;
  (*driver)->cuDeviceGetCount(&devices);
  const Memory kind{MemoryKind::cuda, static_cast<std::int32_t>(rank) % devices};
  const auto bound = world.bind(kind);
  if (!bound) return fail(rank, bound.status().to_string());
  if (*bound != Binding::mesh) return fail(rank, "there is no mesh");
  VariedMemory memory(*driver, kind.device, seed * 1000 + rank);
  std::deque<Words> buffers;
  for (int i = 0; i < 3; ++i) buffers.emplace_back(*driver, kind);
  std::string wrong;
  if (std::string(argv[1]) == "late") {
    wrong = run_late(*runtime, buffers, argv[2]);
  } else {
    const CudaMemory other(*driver, kind.device, 1);
    wrong = run_captured(*runtime, **driver, Words(*driver, kind));
    // The first calls on the duplicate run without the mesh.
    const auto part = world.duplicate();
    if (!part || !part->bind_later(kind)) return fail(rank, "bind_later() fails");
    if (wrong.empty()) wrong = run_cases(*part, kind, memory, other, calls / 4, seed + 1);
    while (wrong.empty()) {
      const Buffer buffer = buffers.front().buffer();
      const Work work = part->on(buffers.front().stream()).all_reduce(buffer, buffer);
      if (const Status ended = work.wait(); !ended) wrong = ended.to_string();
      if (work.runs_on_devices()) break;
    }
    if (wrong.empty()) wrong = run_cases(*part, kind, memory, other, calls / 4, seed + 2);
    if (wrong.empty()) wrong = run_cases(world, kind, memory, other, calls / 2, seed);
    if (wrong.empty()) wrong = become_direct(*runtime, buffers);
  }
  if (!wrong.empty()) return fail(rank, wrong);
  if (const Status met = world.barrier().wait(); !met) return fail(rank, met.to_string());
  return misuses() == 0 ? 0 : fail(rank, "misuse of the driver");
}

}  // namespace
}  // namespace xylem::test

int main(int argc, char** argv) { return xylem::test::run(argc, argv); }
