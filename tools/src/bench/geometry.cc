// SPDX-License-Identifier: Apache-2.0
//
// Computes sizes and results of each operation.
#include "bench/geometry.h"

#include <algorithm>
#include <numeric>

namespace xylem::tools {
namespace {

using Counts = std::vector<std::uint64_t>;

std::uint64_t total(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

std::size_t before(const Counts& counts, std::uint32_t part) {
  return std::accumulate(counts.begin(), counts.begin() + part, std::uint64_t{0});
}

/// Nine tenths of `elements` for rank `shift`, and the rest for the next rank.
Counts mostly_one(std::uint64_t elements, std::uint32_t ranks, std::uint32_t shift) {
  constexpr std::uint64_t kTenth = 10;
  Counts counts(ranks);
  counts[(shift + 1) % ranks] = elements / kTenth;
  counts[shift % ranks] += elements - elements / kTenth;
  return counts;
}

/// Divides `share · ranks` elements into one part for each rank. `shift` rotates the parts: in
/// all_to_all_v it is the sender's rank, so all ranks send the same total number of elements, and
/// all receive the same total number.
Counts uneven(Parts parts, std::size_t share, std::uint32_t ranks, std::uint32_t shift) {
  const std::uint64_t weights = std::uint64_t{ranks} * (ranks + 1) / 2;
  const std::uint64_t elements = std::uint64_t{share} * ranks;
  if (parts == Parts::one) return mostly_one(elements, ranks, shift);
  Counts counts(ranks, share);
  if (parts == Parts::even) return counts;
  for (std::uint32_t i = 0; i < ranks; ++i) {
    const std::uint64_t weight = (i + shift) % ranks + 1;
    counts[i] = elements / weights * weight;
  }
  // The remainder of the division goes to the part with the largest weight.
  counts[(2 * ranks - 1 - shift % ranks) % ranks] += elements % weights;
  return counts;
}

class Builder {
 public:
  explicit Builder(const GeometryQuery& query) : query_(query) {
    const std::size_t elements = query.size.value / query.element_size;
    switch (traits(query.operation).sizing) {
      case Sizing::none: break;
      case Sizing::whole:
        made_.count = std::max<std::size_t>(elements, 1);
        made_.size = {made_.count * query.element_size};
        break;
      case Sizing::parts:
      case Sizing::uneven_parts:
        made_.count = std::max<std::size_t>(elements / query.ranks, 1);
        made_.size = {made_.count * query.ranks * query.element_size};
        break;
    }
  }

  Geometry build() {
    switch (query_.operation) {
      case Operation::all_reduce:
      case Operation::reduce:
        whole(query_.operation == Operation::all_reduce || is_root(), std::nullopt);
        break;
      case Operation::broadcast: whole(true, query_.root); break;
      case Operation::send_recv:
      case Operation::exchange: whole(true, (query_.rank + query_.ranks - 1) % query_.ranks); break;
      case Operation::ping_pong: whole(query_.rank < 2, query_.rank ^ 1U); break;
      case Operation::all_gather:
      case Operation::gather:
        collect(Counts(query_.ranks, made_.count),
                query_.operation == Operation::all_gather || is_root());
        break;
      case Operation::all_gather_v:
        made_.receive_counts = uneven(query_.parts, made_.count, query_.ranks, 0);
        collect(made_.receive_counts, true);
        break;
      case Operation::reduce_scatter:
        spread(Counts(query_.ranks, made_.count), true, std::nullopt);
        break;
      case Operation::scatter:
        spread(Counts(query_.ranks, made_.count), is_root(), query_.root);
        break;
      case Operation::reduce_scatter_v:
        made_.send_counts = uneven(query_.parts, made_.count, query_.ranks, 0);
        spread(made_.send_counts, true, std::nullopt);
        break;
      case Operation::all_to_all:
      case Operation::all_to_all_v: exchange(); break;
      case Operation::barrier: break;
    }
    return std::move(made_);
  }

 private:
  bool is_root() const { return query_.rank == query_.root; }

  /// Input and output have equal size, and the result covers the whole output.
  void whole(bool has_output, std::optional<std::uint32_t> source) {
    made_.input = made_.count;
    made_.output = made_.count;
    if (has_output) made_.result.push_back({0, made_.count, source, 0});
  }

  /// The output is the concatenation of all ranks' inputs.
  void collect(const Counts& counts, bool has_output) {
    made_.input = counts[query_.rank];
    made_.in_place_at = before(counts, query_.rank);
    if (!has_output) return;
    made_.output = total(counts);
    for (std::uint32_t i = 0; i < query_.ranks; ++i) {
      made_.result.push_back({before(counts, i), counts[i], i, 0});
    }
  }

  /// The output is this rank's part of the reduction, or of the root's input.
  void spread(const Counts& counts, bool has_input, std::optional<std::uint32_t> source) {
    made_.in_place_at = before(counts, query_.rank);
    made_.input = has_input ? total(counts) : 0;
    made_.output = counts[query_.rank];
    made_.result.push_back({0, made_.output, source, made_.in_place_at});
  }

  /// The counts that rank `from` sends to each rank.
  Counts sent_by(std::uint32_t from) const {
    return query_.operation == Operation::all_to_all
               ? Counts(query_.ranks, made_.count)
               : uneven(query_.parts, made_.count, query_.ranks, from);
  }

  void exchange() {
    made_.send_counts = sent_by(query_.rank);
    for (std::uint32_t from = 0; from < query_.ranks; ++from) {
      const Counts theirs = sent_by(from);
      const std::size_t mine = theirs[query_.rank];
      made_.result.push_back(
          {total(made_.receive_counts), mine, from, before(theirs, query_.rank)});
      made_.receive_counts.push_back(mine);
    }
    made_.input = total(made_.send_counts);
    made_.output = total(made_.receive_counts);
  }

  const GeometryQuery& query_;
  Geometry made_;
};

}  // namespace

Geometry geometry(const GeometryQuery& query) { return Builder(query).build(); }

}  // namespace xylem::tools
