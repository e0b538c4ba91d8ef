// SPDX-License-Identifier: Apache-2.0
//
// gloo_coll: times Gloo's collectives as mpi_coll.c times MPI's, for bench/compare.
//
//   gloo_coll RANKS [--in-place] OPERATION SIZE...
//
// Starts its own ranks, which use TCP on the loopback interface, since that is what Gloo uses
// between the processes of a host. The ranks are not pinned: each has a thread for its connections,
// which would otherwise compete for the core of the calling thread. all_reduce runs Gloo's ring and
// its bcube, and the faster one counts. Sizes, samples and rows are those of mpi_coll.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Algorithm = gloo::AllreduceOptions::Algorithm;

constexpr int kFewestCalls = 5, kMostCalls = 20000;
constexpr double kRowSeconds = 0.2;

double seconds_since(Clock::time_point begun) {
  return std::chrono::duration<double>(Clock::now() - begun).count();
}

// Small whole numbers, so that sums over ranks are exact in float32 in any order.
float value(int from, std::size_t index) {
  const auto bits =
      static_cast<unsigned>(index) * 2654435761U ^ static_cast<unsigned>(from + 1) * 2246822519U;
  return static_cast<float>((bits ^ bits >> 15) % 61);
}

class Rank {
 public:
  Rank(int rank, int ranks, bool in_place, const std::string& store_path)
      : rank_(rank), ranks_(ranks), in_place_(in_place) {
    gloo::transport::tcp::attr attributes;
    attributes.iface = "lo";
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    gloo::rendezvous::FileStore store(store_path);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
    context->setTimeout(std::chrono::seconds(60));
    context->connectFullMesh(store, device);
    context_ = context;
  }

  // False for an operation that this program does not measure.
  bool measure(const std::string& operation, std::size_t bytes) {
    const bool gathers = operation == "all_gather";
    std::size_t count = bytes / sizeof(float) / static_cast<std::size_t>(gathers ? ranks_ : 1);
    count = std::max<std::size_t>(count, 1);
    in_.assign(count, 0);
    out_.assign(count * static_cast<std::size_t>(gathers ? ranks_ : 1), 0);
    Row best;
    for (const Algorithm algorithm : {Algorithm::RING, Algorithm::BCUBE}) {
      const auto call = call_of(operation, algorithm);
      if (!call) return false;
      const Row row = time(operation, call, bytes);
      if (best.calls == 0 || row.p50 < best.p50) best = row;
      if (operation != "all_reduce") break;
    }
    if (rank_ == 0) {
      std::printf("%s %zu %d %.3f %.3f %.3f %ld\n", operation.c_str(), out_.size() * sizeof(float),
                  best.calls, best.least, best.p50, best.p99, best.wrong);
      std::fflush(stdout);
    }
    return true;
  }

 private:
  struct Row {
    int calls = 0;
    double least = 0, p50 = 0, p99 = 0;
    long wrong = 0;
  };

  std::function<void()> call_of(const std::string& operation, Algorithm algorithm) {
    if (operation == "all_reduce") {
      return [this, algorithm] {
        gloo::AllreduceOptions options(context_);
        options.setAlgorithm(algorithm);
        if (!in_place_) options.setInput(in_.data(), in_.size());
        options.setOutput(out_.data(), out_.size());
        void (*sum)(void*, const void*, const void*, std::size_t) = &gloo::sum<float>;
        options.setReduceFunction(sum);
        gloo::allreduce(options);
      };
    }
    if (operation == "all_gather") {
      return [this] {
        gloo::AllgatherOptions options(context_);
        if (!in_place_) options.setInput(in_.data(), in_.size());
        options.setOutput(out_.data(), out_.size());
        gloo::allgather(options);
      };
    }
    if (operation == "broadcast") {
      return [this] {
        gloo::BroadcastOptions options(context_);
        options.setOutput(out_.data(), out_.size());
        options.setRoot(0);
        gloo::broadcast(options);
      };
    }
    if (operation == "send_recv" && !in_place_) {
      std::shared_ptr<gloo::transport::UnboundBuffer> in =
          context_->createUnboundBuffer(in_.data(), in_.size() * sizeof(float));
      std::shared_ptr<gloo::transport::UnboundBuffer> out =
          context_->createUnboundBuffer(out_.data(), out_.size() * sizeof(float));
      return [this, in, out] {
        constexpr std::uint64_t kSlot = 1000;
        out->recv((rank_ + ranks_ - 1) % ranks_, kSlot);
        in->send((rank_ + 1) % ranks_, kSlot);
        out->waitRecv();
        in->waitSend();
      };
    }
    return {};
  }

  void barrier() {
    gloo::BarrierOptions options(context_);
    options.setTag(1);
    gloo::barrier(options);
  }

  template <typename T>
  std::vector<T> of_all(const std::vector<T>& mine) {
    std::vector<T> all(mine.size() * static_cast<std::size_t>(ranks_));
    gloo::AllgatherOptions options(context_);
    options.setInput(const_cast<T*>(mine.data()), mine.size());
    options.setOutput(all.data(), all.size());
    options.setTag(2);
    gloo::allgather(options);
    return all;
  }

  // Makes one checked call. Returns the number of wrong elements on all ranks.
  long check(const std::string& operation, const std::function<void()>& call) {
    for (std::size_t i = 0; i < in_.size(); ++i) in_[i] = value(rank_, i);
    std::fill(out_.begin(), out_.end(), -1.0F);  // is never right
    const bool is_root = operation == "broadcast" && rank_ == 0;
    if (in_place_ || is_root) {
      const std::size_t own =
          operation == "all_gather" ? static_cast<std::size_t>(rank_) * in_.size() : 0;
      std::copy(in_.begin(), in_.end(), out_.begin() + static_cast<std::ptrdiff_t>(own));
    }
    call();
    long wrong = 0;
    for (std::size_t i = 0; i < out_.size(); ++i) wrong += out_[i] != right(operation, i) ? 1 : 0;
    long sum = 0;
    for (const long one : of_all(std::vector<long>{wrong})) sum += one;
    return sum;
  }

  float right(const std::string& operation, std::size_t i) const {
    if (operation == "all_gather") return value(static_cast<int>(i / in_.size()), i % in_.size());
    if (operation == "broadcast") return value(0, i);
    if (operation == "send_recv") return value((rank_ + ranks_ - 1) % ranks_, i);
    float sum = 0;
    for (int from = 0; from < ranks_; ++from) sum += value(from, i);
    return sum;
  }

  // Makes calls in batches of doubling size until rank 0 decides to stop.
  Row time(const std::string& operation, const std::function<void()>& call, std::size_t bytes) {
    Row row;
    row.wrong = check(operation, call);
    for (int i = bytes <= 64 * 1024 ? 20 : 3; i > 0; --i) call();
    std::vector<double> times;
    const auto start = Clock::now();
    for (int batch = 1; batch > 0;) {
      for (int i = 0; i < batch; ++i) {
        barrier();
        const auto before = Clock::now();
        call();
        times.push_back(seconds_since(before) * 1e6);
      }
      const int done = static_cast<int>(times.size());
      batch = std::min(done, kMostCalls - done);
      if (seconds_since(start) > kRowSeconds) batch = std::max(0, kFewestCalls - done);
      batch = of_all(std::vector<int>{batch}).front();
    }
    const std::vector<double> all = of_all(times);
    for (std::size_t i = 0; i < all.size(); ++i) {
      times[i % times.size()] = std::max(times[i % times.size()], all[i]);
    }
    row.wrong += check(operation, call);
    std::sort(times.begin(), times.end());
    row.calls = static_cast<int>(times.size());
    row.least = times.front();
    row.p50 = (times[times.size() / 2] + times[(times.size() - 1) / 2]) / 2;
    row.p99 = times[(times.size() * 99 + 99) / 100 - 1];
    return row;
  }

  int rank_, ranks_;
  bool in_place_;
  std::shared_ptr<gloo::Context> context_;
  std::vector<float> in_, out_;
};

int run_rank(int rank, int ranks, bool in_place, const std::string& store, char** arguments) {
  try {
    Rank self(rank, ranks, in_place, store);
    const std::string operation = *arguments++;
    for (; *arguments != nullptr; ++arguments) {
      if (!self.measure(operation, std::strtoull(*arguments, nullptr, 10))) return 3;
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gloo_coll: rank %d: %s\n", rank, error.what());
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 0;
  const bool in_place = argc > 2 && std::strcmp(argv[2], "--in-place") == 0;
  const int next = in_place ? 3 : 2;
  if (ranks < 1 || next + 2 > argc) {
    std::fprintf(stderr, "usage: gloo_coll RANKS [--in-place] OPERATION SIZE...\n");
    return 2;
  }
  std::string store = (std::filesystem::temp_directory_path() / "gloo_coll-XXXXXX").string();
  if (mkdtemp(store.data()) == nullptr) {
    std::perror("gloo_coll: mkdtemp");
    return 1;
  }
  for (int rank = 0; rank < ranks; ++rank) {
    if (fork() != 0) continue;
    _exit(run_rank(rank, ranks, in_place, store, argv + next));
  }
  int worst = 0;
  for (int rank = 0, status = 0; rank < ranks; ++rank) {
    wait(&status);
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  std::filesystem::remove_all(store);
  return worst;
}
