// SPDX-License-Identifier: Apache-2.0
//
// Small collectives on single values.
#include "bench/agreement.h"

#include <numeric>
#include <span>

namespace xylem::tools {

Result<std::uint64_t> from_first(const Communicator& control, std::uint64_t value) {
  XYLEM_TRY(control.broadcast(std::span(&value, 1), 0).wait());
  return value;
}

Result<std::uint64_t> sum_of(const Communicator& control, std::uint64_t value) {
  const Buffer one(std::span(&value, 1));
  XYLEM_TRY(control.all_reduce(one, one, RedOp::sum).wait());
  return value;
}

Result<std::vector<double>> maximum_of(const Communicator& control, std::vector<double> values) {
  const Buffer all{std::span(values)};
  XYLEM_TRY(control.all_reduce(all, all, RedOp::max).wait());
  return values;
}

Result<std::vector<std::string>> texts_of(const Communicator& control, std::string_view text) {
  std::uint64_t size = text.size();
  std::vector<std::uint64_t> sizes(control.size());
  XYLEM_TRY(control.all_gather(std::span(&size, 1), std::span(sizes)).wait());
  std::string all(std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0}), '\0');
  XYLEM_TRY(control
                .all_gather_v(ConstBuffer(text.data(), text.size(), DataType::uint8),
                              Buffer(all.data(), all.size(), DataType::uint8), sizes)
                .wait());
  std::vector<std::string> texts;
  std::size_t at = 0;
  for (const std::uint64_t bytes : sizes) {
    texts.push_back(all.substr(at, bytes));
    at += bytes;
  }
  return texts;
}

}  // namespace xylem::tools
