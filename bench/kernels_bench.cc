// SPDX-License-Identifier: Apache-2.0
//
// The reduction kernels alone: bytes per second by type, number of sources and size; nanoseconds of
// a tiny call; and the conversions. bytes_per_second counts all bytes read and written: (sources +
// 1) times the buffer.
#include "xylem/execution/host_kernels.h"

#include <benchmark/benchmark.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace xylem::execution {
namespace {

constexpr std::size_t kMaxSources = 8;

/// Buffers of one size, already written, with offsets such that no two start in the same cache set.
class Buffers {
 public:
  Buffers(std::size_t source_count, std::size_t bytes) : bytes_(bytes), sources_(source_count) {
    for (std::size_t k = 0; k <= source_count; ++k) {
      storage_[k].assign(bytes + kPadding, std::byte{0});
    }
    for (std::size_t k = 0; k < source_count; ++k) sources_[k] = address(k);
  }

  void* target() { return address(sources_.size()); }
  const void* const* sources() const { return sources_.data(); }
  std::size_t source_count() const { return sources_.size(); }
  std::size_t bytes() const { return bytes_; }

 private:
  static constexpr std::size_t kPadding = 4096;

  std::byte* address(std::size_t k) {
    const auto start = reinterpret_cast<std::uintptr_t>(storage_[k].data());
    return storage_[k].data() + (64 - start % 64) % 64 + 192 * k;
  }

  std::size_t bytes_;
  std::array<std::vector<std::byte>, kMaxSources + 1> storage_;
  std::vector<const void*> sources_;
};

void reduce(benchmark::State& state, RedOp op, DataType type, bool in_place) {
  Buffers buffers(static_cast<std::size_t>(state.range(0)),
                  static_cast<std::size_t>(state.range(1)));
  const ReduceKernel kernel = reduce_kernel(op, type);
  const std::size_t count = buffers.bytes() / size_of(type);
  void* const target = in_place ? const_cast<void*>(buffers.sources()[0]) : buffers.target();
  for ([[maybe_unused]] auto _ : state) {
    kernel(target, buffers.sources(), buffers.source_count(), count, {});
    benchmark::ClobberMemory();
  }
  state.SetLabel(std::string(kernel_targets().front()));
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(
                                                   (buffers.source_count() + 1) * buffers.bytes()));
}

void conversion(benchmark::State& state, DataType type, bool widening) {
  const auto count = static_cast<std::size_t>(state.range(0));
  std::vector<float> wide(count);
  std::vector<std::byte> narrowed(count * size_of(type));
  for ([[maybe_unused]] auto _ : state) {
    widening ? widen(wide.data(), narrowed.data(), count, type)
             : narrow(narrowed.data(), wide.data(), count, type);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() *
                          static_cast<std::int64_t>(count * sizeof(float) + narrowed.size()));
}

void sources_and_sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"sources", "bytes"});
  bench->ArgsProduct({{2, 3, 4, 8}, {4 << 10, 256 << 10, 16 << 20}});
}

void tiny(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"sources", "bytes"});
  bench->ArgsProduct({{2, 4}, {8, 16, 28, 64, 252}});
}

BENCHMARK_CAPTURE(reduce, float32_sum, RedOp::sum, DataType::float32, false)
    ->Apply(sources_and_sizes);
BENCHMARK_CAPTURE(reduce, float32_sum_in_place, RedOp::sum, DataType::float32, true)
    ->Apply(sources_and_sizes);
BENCHMARK_CAPTURE(reduce, bfloat16_sum, RedOp::sum, DataType::bfloat16, false)
    ->Apply(sources_and_sizes);
BENCHMARK_CAPTURE(reduce, float16_sum, RedOp::sum, DataType::float16, false)
    ->Apply(sources_and_sizes);
BENCHMARK_CAPTURE(reduce, float8_e4m3_sum, RedOp::sum, DataType::float8_e4m3, false)
    ->Apply(sources_and_sizes);
BENCHMARK_CAPTURE(reduce, float8_e5m2_sum, RedOp::sum, DataType::float8_e5m2, false)
    ->Apply(sources_and_sizes);
BENCHMARK_CAPTURE(reduce, float32_max, RedOp::max, DataType::float32, false)
    ->Apply(sources_and_sizes);
BENCHMARK_CAPTURE(reduce, int8_product, RedOp::product, DataType::int8, false)
    ->Apply(sources_and_sizes);
BENCHMARK_CAPTURE(reduce, float32_tiny, RedOp::sum, DataType::float32, false)->Apply(tiny);
BENCHMARK_CAPTURE(reduce, bfloat16_tiny, RedOp::sum, DataType::bfloat16, false)->Apply(tiny);
BENCHMARK_CAPTURE(reduce, float8_e4m3_tiny, RedOp::sum, DataType::float8_e4m3, false)->Apply(tiny);
BENCHMARK_CAPTURE(conversion, widen_float16, DataType::float16, true)->Arg(16 << 10);
BENCHMARK_CAPTURE(conversion, narrow_float16, DataType::float16, false)->Arg(16 << 10);
BENCHMARK_CAPTURE(conversion, widen_bfloat16, DataType::bfloat16, true)->Arg(16 << 10);
BENCHMARK_CAPTURE(conversion, narrow_bfloat16, DataType::bfloat16, false)->Arg(16 << 10);
BENCHMARK_CAPTURE(conversion, widen_float8_e4m3, DataType::float8_e4m3, true)->Arg(16 << 10);
BENCHMARK_CAPTURE(conversion, narrow_float8_e4m3, DataType::float8_e4m3, false)->Arg(16 << 10);
BENCHMARK_CAPTURE(conversion, widen_float8_e5m2, DataType::float8_e5m2, true)->Arg(16 << 10);
BENCHMARK_CAPTURE(conversion, narrow_float8_e5m2, DataType::float8_e5m2, false)->Arg(16 << 10);

}  // namespace
}  // namespace xylem::execution

BENCHMARK_MAIN();
