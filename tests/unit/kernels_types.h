// SPDX-License-Identifier: Apache-2.0
//
// The element types with which kernels are tested.
#pragma once

#include "xylem/base/data_type.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <random>
#include <string>

namespace xylem::execution {

inline constexpr std::array kIntegers{DataType::int8,   DataType::uint8, DataType::int16,
                                      DataType::uint16, DataType::int32, DataType::uint32,
                                      DataType::int64,  DataType::uint64};
/// Floats narrower than fp32. Kernels convert them to compute.
inline constexpr std::array kNarrowFloats{DataType::float8_e4m3, DataType::float8_e5m2,
                                          DataType::float16, DataType::bfloat16};
inline constexpr std::array kFloats{DataType::float8_e4m3, DataType::float8_e5m2,
                                    DataType::float16,     DataType::bfloat16,
                                    DataType::float32,     DataType::float64};

/// Names a test after its parameter, a data type.
inline std::string type_name(const testing::TestParamInfo<DataType>& test) {
  return std::string(name(test.param));
}

using Random = std::mt19937_64;

}  // namespace xylem::execution
