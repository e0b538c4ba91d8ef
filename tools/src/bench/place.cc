// SPDX-License-Identifier: Apache-2.0
#include "bench/place.h"

#include "xylem/execution/cuda_stream.h"

#include <fmt/format.h>

#include <cstring>

namespace xylem::tools {

Result<Place> Place::choose(const BenchOptions& options, std::uint32_t local_rank) {
  Place place;
  if (!options.device.is_cuda) return place;
  auto number = static_cast<std::int32_t>(options.device.number.value_or(0));
  if (!options.device.number) {
    XYLEM_TRY(const int devices, execution::count_cuda_devices());
    if (devices == 0) {
      return failure(Code::unsupported, "--device cuda: this process sees no CUDA device");
    }
    number = static_cast<std::int32_t>(local_rank % static_cast<std::uint32_t>(devices));
  }
  XYLEM_TRY(place.stream_, execution::CudaStream::make(number));
  place.memory_ = {MemoryKind::cuda, number};
  place.orders_calls_ = options.stream;
  return place;
}

Communicator Place::handle(const Communicator& communicator) const {
  return orders_calls_ ? communicator.on({stream_->handle(), memory_}) : communicator;
}

Status Place::copy(void* target, const void* source, std::size_t bytes) const {
  if (is_on_device()) return stream_->copy(target, source, bytes);
  std::memcpy(target, source, bytes);
  return {};
}

Status Place::wait_for_stream() const { return orders_calls_ ? stream_->synchronize() : Status(); }

}  // namespace xylem::tools
