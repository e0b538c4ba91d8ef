// SPDX-License-Identifier: Apache-2.0
//
// The collectives of the C API. Callers in C pass the count of one rank, where the C++ API takes
// whole buffers, so the counts are multiplied here. If a product overflows, the largest count takes
// its place, and the C++ API rejects the call.
#include "begin.h"

#include <limits>
#include <span>

namespace {

using xylem::Communicator;
using xylem::DataType;
using xylem::ReduceOp;
using xylem::Result;
using xylem::Work;
using xylem::c::begin_move;

using Counts = std::span<const std::uint64_t>;

constexpr std::size_t kTooMany = std::numeric_limits<std::size_t>::max();

std::size_t times(std::size_t count, std::uint32_t ranks) {
  std::size_t total = 0;
  return __builtin_mul_overflow(count, ranks, &total) ? kTooMany : total;
}

std::size_t sum(Counts counts) {
  std::size_t total = 0;
  for (const std::uint64_t count : counts) {
    if (__builtin_add_overflow(total, count, &total)) return kTooMany;
  }
  return total;
}

/// Checks a caller's array of counts, which has one entry for each rank.
Result<Counts> per_rank(const Communicator& on,
                        std::string_view name,
                        const std::uint64_t* counts) {
  if (counts == nullptr) return xylem::c::null_argument(name);
  return Counts(counts, on.size());
}

Result<ReduceOp> with_factor(xylem_redop op, double factor) {
  XYLEM_TRY(const auto which, xylem::c::to_redop(op));
  ReduceOp reduction(which);
  reduction.factor = factor;
  return reduction;
}

struct Reduction {
  const void* input;
  void* output;
  xylem_data_type type;
  xylem_redop op;
  double factor = 1.0;
};

/// Like begin_move(), for reductions: `start(const Communicator&, DataType, ReduceOp)` returns a
/// Result<Work>.
template <typename Start>
xylem_status begin_reduction(const xylem_communicator* communicator,
                             const Reduction& call,
                             xylem_work** work,
                             Start&& start) noexcept {
  return begin_move(communicator, call.type, work,
                    [&](const Communicator& on, DataType element) -> Result<Work> {
                      XYLEM_TRY(const ReduceOp reduction, with_factor(call.op, call.factor));
                      return start(on, element, reduction);
                    });
}

xylem_status all_reduce(xylem_communicator* communicator,
                        const Reduction& call,
                        size_t count,
                        xylem_work** work) {
  return begin_reduction(
      communicator, call, work,
      [&](const Communicator& on, DataType element, ReduceOp reduction) -> Result<Work> {
        return on.all_reduce({call.input, count, element}, {call.output, count, element},
                             reduction);
      });
}

xylem_status reduce(xylem_communicator* communicator,
                    const Reduction& call,
                    size_t count,
                    uint32_t root,
                    xylem_work** work) {
  return begin_reduction(
      communicator, call, work,
      [&](const Communicator& on, DataType element, ReduceOp reduction) -> Result<Work> {
        return on.reduce({call.input, count, element}, {call.output, count, element}, reduction,
                         root);
      });
}

xylem_status reduce_scatter(xylem_communicator* communicator,
                            const Reduction& call,
                            size_t count,
                            xylem_work** work) {
  return begin_reduction(
      communicator, call, work,
      [&](const Communicator& on, DataType element, ReduceOp reduction) -> Result<Work> {
        return on.reduce_scatter({call.input, times(count, on.size()), element},
                                 {call.output, count, element}, reduction);
      });
}

xylem_status reduce_scatter_v(xylem_communicator* communicator,
                              const Reduction& call,
                              const uint64_t* counts,
                              xylem_work** work) {
  return begin_reduction(
      communicator, call, work,
      [&](const Communicator& on, DataType element, ReduceOp reduction) -> Result<Work> {
        XYLEM_TRY(const Counts parts, per_rank(on, "counts", counts));
        return on.reduce_scatter_v({call.input, sum(parts), element},
                                   {call.output, parts[on.rank()], element}, parts, reduction);
      });
}

}  // namespace

xylem_status xylem_all_reduce(xylem_communicator* communicator,
                              const void* input,
                              void* output,
                              size_t count,
                              xylem_data_type type,
                              xylem_redop op,
                              xylem_work** work) {
  return all_reduce(communicator, {input, output, type, op}, count, work);
}

xylem_status xylem_all_reduce_premul_sum(xylem_communicator* communicator,
                                         const void* input,
                                         void* output,
                                         size_t count,
                                         xylem_data_type type,
                                         double factor,
                                         xylem_work** work) {
  return all_reduce(communicator, {input, output, type, XYLEM_PREMUL_SUM, factor}, count, work);
}

xylem_status xylem_reduce(xylem_communicator* communicator,
                          const void* input,
                          void* output,
                          size_t count,
                          xylem_data_type type,
                          xylem_redop op,
                          uint32_t root,
                          xylem_work** work) {
  return reduce(communicator, {input, output, type, op}, count, root, work);
}

xylem_status xylem_reduce_premul_sum(xylem_communicator* communicator,
                                     const void* input,
                                     void* output,
                                     size_t count,
                                     xylem_data_type type,
                                     double factor,
                                     uint32_t root,
                                     xylem_work** work) {
  return reduce(communicator, {input, output, type, XYLEM_PREMUL_SUM, factor}, count, root, work);
}

xylem_status xylem_reduce_scatter(xylem_communicator* communicator,
                                  const void* input,
                                  void* output,
                                  size_t count,
                                  xylem_data_type type,
                                  xylem_redop op,
                                  xylem_work** work) {
  return reduce_scatter(communicator, {input, output, type, op}, count, work);
}

xylem_status xylem_reduce_scatter_premul_sum(xylem_communicator* communicator,
                                             const void* input,
                                             void* output,
                                             size_t count,
                                             xylem_data_type type,
                                             double factor,
                                             xylem_work** work) {
  return reduce_scatter(communicator, {input, output, type, XYLEM_PREMUL_SUM, factor}, count, work);
}

xylem_status xylem_reduce_scatter_v(xylem_communicator* communicator,
                                    const void* input,
                                    void* output,
                                    const uint64_t* counts,
                                    xylem_data_type type,
                                    xylem_redop op,
                                    xylem_work** work) {
  return reduce_scatter_v(communicator, {input, output, type, op}, counts, work);
}

xylem_status xylem_reduce_scatter_v_premul_sum(xylem_communicator* communicator,
                                               const void* input,
                                               void* output,
                                               const uint64_t* counts,
                                               xylem_data_type type,
                                               double factor,
                                               xylem_work** work) {
  return reduce_scatter_v(communicator, {input, output, type, XYLEM_PREMUL_SUM, factor}, counts,
                          work);
}

xylem_status xylem_broadcast(xylem_communicator* communicator,
                             const void* input,
                             void* output,
                             size_t count,
                             xylem_data_type type,
                             uint32_t root,
                             xylem_work** work) {
  return begin_move(communicator, type, work,
                    [&](const Communicator& on, DataType element) -> Result<Work> {
                      return on.broadcast({input, count, element}, {output, count, element}, root);
                    });
}

xylem_status xylem_all_gather(xylem_communicator* communicator,
                              const void* input,
                              void* output,
                              size_t count,
                              xylem_data_type type,
                              xylem_work** work) {
  return begin_move(
      communicator, type, work, [&](const Communicator& on, DataType element) -> Result<Work> {
        return on.all_gather({input, count, element}, {output, times(count, on.size()), element});
      });
}

xylem_status xylem_all_gather_v(xylem_communicator* communicator,
                                const void* input,
                                void* output,
                                const uint64_t* counts,
                                xylem_data_type type,
                                xylem_work** work) {
  return begin_move(communicator, type, work,
                    [&](const Communicator& on, DataType element) -> Result<Work> {
                      XYLEM_TRY(const Counts parts, per_rank(on, "counts", counts));
                      return on.all_gather_v({input, parts[on.rank()], element},
                                             {output, sum(parts), element}, parts);
                    });
}

xylem_status xylem_all_to_all(xylem_communicator* communicator,
                              const void* input,
                              void* output,
                              size_t count,
                              xylem_data_type type,
                              xylem_work** work) {
  return begin_move(communicator, type, work,
                    [&](const Communicator& on, DataType element) -> Result<Work> {
                      const std::size_t total = times(count, on.size());
                      return on.all_to_all({input, total, element}, {output, total, element});
                    });
}

xylem_status xylem_all_to_all_v(xylem_communicator* communicator,
                                const void* input,
                                const uint64_t* send_counts,
                                void* output,
                                const uint64_t* recv_counts,
                                xylem_data_type type,
                                xylem_work** work) {
  return begin_move(communicator, type, work,
                    [&](const Communicator& on, DataType element) -> Result<Work> {
                      XYLEM_TRY(const Counts sent, per_rank(on, "send_counts", send_counts));
                      XYLEM_TRY(const Counts received, per_rank(on, "recv_counts", recv_counts));
                      return on.all_to_all_v({input, sum(sent), element}, sent,
                                             {output, sum(received), element}, received);
                    });
}

xylem_status xylem_gather(xylem_communicator* communicator,
                          const void* input,
                          void* output,
                          size_t count,
                          xylem_data_type type,
                          uint32_t root,
                          xylem_work** work) {
  return begin_move(
      communicator, type, work, [&](const Communicator& on, DataType element) -> Result<Work> {
        return on.gather({input, count, element}, {output, times(count, on.size()), element}, root);
      });
}

xylem_status xylem_scatter(xylem_communicator* communicator,
                           const void* input,
                           void* output,
                           size_t count,
                           xylem_data_type type,
                           uint32_t root,
                           xylem_work** work) {
  return begin_move(communicator, type, work,
                    [&](const Communicator& on, DataType element) -> Result<Work> {
                      return on.scatter({input, times(count, on.size()), element},
                                        {output, count, element}, root);
                    });
}

xylem_status xylem_barrier(xylem_communicator* communicator, xylem_work** work) {
  return xylem::c::begin(communicator, work,
                         [](const Communicator& on) -> Result<Work> { return on.barrier(); });
}
