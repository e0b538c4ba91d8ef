// SPDX-License-Identifier: Apache-2.0
//
// Work on a rank's stream around a call: copies that produce the call's input, and copies that
// consume its output.
#pragma once

#include "support/cuda_ranks.h"
#include "xylem/xylem.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>

namespace xylem::test {

using execution::cuda::CurrentContext;
using execution::cuda::Driver;

/// The number of words in each buffer of a Round.
inline constexpr std::uint64_t kCount = 3000;
inline constexpr std::uint64_t kBytes = kCount * sizeof(std::uint32_t);

/// Pinned host memory of kCount words. The driver copies it asynchronously: cuMemcpyAsync returns
/// before the copy has run.
class Pinned {
 public:
  Pinned(const Driver& driver, CUcontext context) : driver_(driver), context_(context) {
    const CurrentContext current(driver_, context_);
    void* memory = nullptr;
    EXPECT_EQ(driver_.cuMemHostAlloc(&memory, kBytes, 0), CUDA_SUCCESS);
    words_ = static_cast<std::uint32_t*>(memory);
  }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  ~Pinned() {
    const CurrentContext current(driver_, context_);
    driver_.blocking(execution::cuda::MayWait{}).cuMemFreeHost(words_);
  }
  std::span<std::uint32_t> words() const { return {words_, kCount}; }
  CUdeviceptr address() const { return reinterpret_cast<CUdeviceptr>(words_); }

 private:
  const Driver& driver_;
  const CUcontext context_;
  std::uint32_t* words_ = nullptr;
};

/// One all_reduce on a rank's stream, between copies on the same stream. The copies before the call
/// write values into the call's buffer. The copies after the call read the result, and overwrite
/// the buffer. The thread does not wait between these steps.
class Round {
 public:
  Round(CudaRanks& devices, std::uint32_t rank, std::uint32_t ranks)
      : driver_(devices.driver()),
        memory_(devices.memory(rank)),
        rank_(rank),
        ranks_(ranks),
        before_(driver_, memory_.context()),
        result_(driver_, memory_.context()),
        after_(driver_, memory_.context()),
        buffer_(memory_.allocate(kBytes), kCount, DataType::uint32, devices.kind(rank)) {}

  /// Enqueues the producer, the call and the consumer. `on_stream` must make calls in the stream's
  /// order (Communicator::on()).
  Work give(const Communicator& on_stream, std::uint32_t number) {
    Work work = begin(on_stream, number);
    consume();
    return work;
  }
  /// Enqueues the producer and the call. consume() may follow only when neither the call nor a peer
  /// can access the buffer.
  Work begin(const Communicator& comm, std::uint32_t number) {
    produce(number);
    return comm.all_reduce(buffer_, buffer_, RedOp::sum);
  }
  void produce(std::uint32_t number) {
    fill(number);
    std::fill(after_.words().begin(), after_.words().end(), 0xdead);
    copy(address(), before_.address());
  }
  /// Changes the values that the copy of produce() reads. If this copy has not run yet, for example
  /// because it is part of a graph, it copies the changed values.
  void fill(std::uint32_t number) {
    number_ = number;
    std::iota(before_.words().begin(), before_.words().end(), 10 * number + rank_);
  }
  /// Like the copy of produce(), but on `stream`. fill() has set the values.
  void produce_on(CUstream stream) const {
    const CurrentContext current(driver_, memory_.context());
    EXPECT_EQ(driver_.cuMemcpyAsync(address(), before_.address(), kBytes, stream), CUDA_SUCCESS);
  }
  void consume() {
    copy(result_.address(), address());
    copy(address(), after_.address());
  }
  CUresult wait() const {
    const CurrentContext current(driver_, memory_.context());
    return driver_.cuStreamSynchronize(memory_.stream());
  }
  bool is_right() const {
    const auto words = result_.words();
    for (std::uint64_t i = 0; i < words.size(); ++i) {
      const auto sum =
          static_cast<std::uint32_t>(ranks_ * (10 * number_ + i) + ranks_ * (ranks_ - 1) / 2);
      if (words[i] != sum) return false;
    }
    return true;
  }
  bool ends_right() const { return wait() == CUDA_SUCCESS && is_right(); }
  /// The first word of the result.
  std::uint32_t first() const { return result_.words()[0]; }
  const Buffer& buffer() const { return buffer_; }

 private:
  CUdeviceptr address() const { return reinterpret_cast<CUdeviceptr>(buffer_.data); }
  void copy(CUdeviceptr target, CUdeviceptr source) const {
    const CurrentContext current(driver_, memory_.context());
    EXPECT_EQ(driver_.cuMemcpyAsync(target, source, kBytes, memory_.stream()), CUDA_SUCCESS);
  }

  const Driver& driver_;
  CudaMemory& memory_;
  const std::uint32_t rank_, ranks_;
  std::uint32_t number_ = 0;
  Pinned before_, result_, after_;
  Buffer buffer_;
};

inline Stream stream_of(CudaRanks& devices, std::uint32_t rank) {
  return {devices.memory(rank).stream(), devices.kind(rank)};
}

/// Makes one call after another. `on_stream` must make calls in the order of the rank's stream.
inline void check_rounds(Round& round, const Communicator& on_stream, std::uint32_t rounds) {
  for (std::uint32_t number = 0; number < rounds; ++number) {
    const Work work = round.give(on_stream, number);
    ASSERT_TRUE(round.ends_right()) << "round " << number;
    ASSERT_TRUE(work.wait());
  }
}

}  // namespace xylem::test
