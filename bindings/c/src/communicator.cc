// SPDX-License-Identifier: Apache-2.0
//
// Communicator in the C API, except for its operations.
#include "failure.h"
#include "handles.h"
#include "sized.h"
#include "values.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

namespace {

using xylem::Code;
using xylem::Result;
using xylem::Status;
using xylem::c::guarded;
using xylem::c::null_argument;

/// Sets `*result` to a new handle. Leaves it null if the communicator is empty, which means that
/// this rank joins no communicator.
Status hand_out(Result<xylem::Communicator> made, xylem_communicator** result) {
  XYLEM_TRY(auto communicator, std::move(made));
  if (communicator)
    *result = std::make_unique<xylem_communicator>(xylem_communicator{communicator}).release();
  return {};
}

template <std::size_t Size>
void copy_text(std::string_view text, char (&target)[Size]) {
  const std::size_t length = std::min(text.size(), Size - 1);
  std::memcpy(target, text.data(), length);
  target[length] = '\0';
}

}  // namespace

uint32_t xylem_communicator_rank(const xylem_communicator* communicator) {
  return communicator == nullptr ? XYLEM_NO_RANK : communicator->communicator.rank();
}

uint32_t xylem_communicator_size(const xylem_communicator* communicator) {
  return communicator == nullptr ? 0 : communicator->communicator.size();
}

uint32_t xylem_communicator_id(const xylem_communicator* communicator) {
  return communicator == nullptr ? XYLEM_NO_RANK : communicator->communicator.id();
}

uint32_t xylem_communicator_world_rank(const xylem_communicator* communicator, uint32_t rank) {
  const bool there = communicator != nullptr && rank < communicator->communicator.size();
  return there ? communicator->communicator.world_rank(rank) : XYLEM_NO_RANK;
}

xylem_status xylem_communicator_split(xylem_communicator* communicator,
                                      int32_t color,
                                      int32_t key,
                                      xylem_communicator** result) {
  return guarded([&]() -> Status {
    if (result == nullptr) return null_argument("result");
    *result = nullptr;
    if (communicator == nullptr) return null_argument("communicator");
    return hand_out(communicator->communicator.split(color, key), result);
  });
}

xylem_status xylem_communicator_duplicate(xylem_communicator* communicator,
                                          xylem_communicator** result) {
  return guarded([&]() -> Status {
    if (result == nullptr) return null_argument("result");
    *result = nullptr;
    if (communicator == nullptr) return null_argument("communicator");
    return hand_out(communicator->communicator.duplicate(), result);
  });
}

xylem_status xylem_communicator_on_stream(xylem_communicator* communicator,
                                          void* stream,
                                          int32_t device,
                                          xylem_communicator** result) {
  return guarded([&]() -> Status {
    if (result == nullptr) return null_argument("result");
    *result = nullptr;
    if (communicator == nullptr) return null_argument("communicator");
    auto on_stream = communicator->communicator.on({stream, {xylem::MemoryKind::cuda, device}});
    *result = std::make_unique<xylem_communicator>(
                  xylem_communicator{std::move(on_stream), false, /*is_on_stream=*/true})
                  .release();
    return {};
  });
}

xylem_status xylem_communicator_bind(xylem_communicator* communicator,
                                     int32_t device,
                                     int* is_mesh) {
  return guarded([&]() -> Status {
    if (communicator == nullptr) return null_argument("communicator");
    const bool has_device = device >= 0;
    const xylem::Memory memory{has_device ? xylem::MemoryKind::cuda : xylem::MemoryKind::host,
                               has_device ? device : 0};
    XYLEM_TRY(const auto binding, communicator->communicator.bind(memory));
    if (is_mesh != nullptr) *is_mesh = binding == xylem::Binding::mesh ? 1 : 0;
    return {};
  });
}

xylem_status xylem_communicator_destroy(xylem_communicator* communicator) {
  return guarded([&]() -> Status {
    if (communicator == nullptr) return {};
    if (communicator->of_runtime) {
      return xylem::failure(Code::invalid_argument,
                            "the world belongs to its runtime; destroy the runtime, or a "
                            "communicator that split made");
    }
    if (!communicator->is_on_stream) XYLEM_TRY(communicator->communicator.destroy());
    const std::unique_ptr<xylem_communicator> owned(communicator);
    return {};
  });
}

xylem_status xylem_communicator_abort(xylem_communicator* communicator, const char* why) {
  return guarded([&]() -> Status {
    if (communicator == nullptr) return null_argument("communicator");
    return communicator->communicator.abort(why == nullptr ? "no reason given" : why);
  });
}

xylem_status xylem_communicator_plan(xylem_communicator* communicator,
                                     const char* collective,
                                     uint64_t count,
                                     xylem_data_type type,
                                     uint32_t root,
                                     xylem_plan* plan) {
  return guarded([&]() -> Status {
    if (communicator == nullptr) return null_argument("communicator");
    if (collective == nullptr) return null_argument("collective");
    if (plan == nullptr) return null_argument("plan");
    XYLEM_TRY(const auto element, xylem::c::to_data_type(type));
    XYLEM_TRY(const auto info,
              communicator->communicator.plan_info(collective, count, element, root));
    xylem_plan known{};
    known.predicted_us = info.predicted_us;
    known.runner_up_us = info.runner_up_us;
    copy_text(info.algorithm, known.algorithm);
    copy_text(info.runner_up, known.runner_up);
    copy_text(info.reason, known.reason);
    return xylem::c::write_sized("xylem_plan", known, plan);
  });
}
