// SPDX-License-Identifier: Apache-2.0
#include "xylem/execution/device_kernels.h"

#include <fmt/format.h>

namespace xylem::execution {

namespace {

/// The reduction that the kernel of `op` computes: averages and premultiplied sums are computed as
/// sums.
RedOp combines_as(RedOp op) noexcept {
  return op == RedOp::avg || op == RedOp::premul_sum ? RedOp::sum : op;
}

constexpr std::size_t kReductions = kRedOpCount * kDataTypeCount;
// Reductions have the first numbers. Exchanges and scalings follow.
constexpr std::size_t kFirstScaling = 2 * kReductions;
constexpr std::size_t kKernels = kFirstScaling + kDataTypeCount;

/// The unsigned integer type of this size.
DataType unsigned_of(std::size_t bytes) noexcept {
  switch (bytes) {
    case 8: return DataType::uint64;
    case 4: return DataType::uint32;
    case 2: return DataType::uint16;
    default: return DataType::uint8;
  }
}

}  // namespace

KernelId device_reduce_kernel(RedOp op, DataType type) noexcept {
  return static_cast<KernelId>(static_cast<std::size_t>(combines_as(op)) * kDataTypeCount +
                               static_cast<std::size_t>(type));
}

KernelId device_scale_kernel(DataType type) noexcept {
  return static_cast<KernelId>(kFirstScaling + static_cast<std::size_t>(type));
}

KernelId device_exchange_kernel(RedOp op, DataType type) noexcept {
  return static_cast<KernelId>(kReductions + device_reduce_kernel(op, type));
}

KernelId device_exchange_copy_kernel(std::size_t element_bytes) noexcept {
  return device_exchange_kernel(RedOp::bit_or, unsigned_of(element_bytes));
}

std::vector<std::string> device_kernel_names() {
  std::vector<std::string> names(kKernels);
  for (std::size_t t = 0; t < kDataTypeCount; ++t) {
    const auto type = static_cast<DataType>(t);
    for (std::size_t o = 0; o < kRedOpCount; ++o) {
      const auto op = static_cast<RedOp>(o);
      if (combines_as(op) != op || !check_reduction(op, type)) continue;
      names[device_reduce_kernel(op, type)] =
          fmt::format("xylem_reduce_{}_{}", name(op), name(type));
      names[device_exchange_kernel(op, type)] =
          fmt::format("xylem_exchange_{}_{}", name(op), name(type));
    }
    if (check_reduction(RedOp::premul_sum, type)) {
      names[device_scale_kernel(type)] = fmt::format("xylem_scale_{}", name(type));
    }
  }
  return names;
}

}  // namespace xylem::execution
