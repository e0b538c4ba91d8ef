// SPDX-License-Identifier: Apache-2.0
//
// Stream memory operations. A wait occupies its hardware queue until it is satisfied. It polls the
// memory, since other processes and the CPU write to it without notification.
#include "fakes/cuda_driver/access.h"

#include <algorithm>
#include <atomic>
#include <limits>

namespace xylem::fake_cuda {
namespace {

/// The longest batch that CUDA accepts.
constexpr unsigned kMostOperations = 256;

struct Operation {
  bool is_wait = false;
  unsigned bytes = 4;
  unsigned flags = 0;
  std::uint64_t value = 0;
  Place place;
};

template <typename Word>
bool is_satisfied(const Operation& operation) {
  const std::atomic_ref<Word> word(*reinterpret_cast<Word*>(operation.place.view));
  const Word now = word.load(std::memory_order_acquire);
  const auto value = static_cast<Word>(operation.value);
  switch (operation.flags) {
    // Cyclic comparison: the difference, as a signed number, is not negative.
    case CU_STREAM_WAIT_VALUE_GEQ:
      return static_cast<Word>(now - value) <= std::numeric_limits<Word>::max() / 2;
    case CU_STREAM_WAIT_VALUE_EQ: return now == value;
    case CU_STREAM_WAIT_VALUE_AND: return (now & value) != 0;
    default: return static_cast<Word>(~(now | value)) != 0;
  }
}

template <typename Word>
void write(const Operation& operation) {
  const std::atomic_ref<Word> word(*reinterpret_cast<Word*>(operation.place.view));
  word.store(static_cast<Word>(operation.value), std::memory_order_release);
}

void execute(const Operation& operation, const Run& run) {
  if (!is_still_there(run, operation.place)) return;
  const bool is_long = operation.bytes == 8;
  if (!operation.is_wait) {
    if (is_long) {
      write<std::uint64_t>(operation);
    } else {
      write<std::uint32_t>(operation);
    }
    return;
  }
  for (unsigned tries = 0; !run.is_aborted(); ++tries) {
    if (is_long ? is_satisfied<std::uint64_t>(operation) : is_satisfied<std::uint32_t>(operation)) {
      return;
    }
    run.pause(tries);
  }
}

Operation wait_operation(unsigned bytes, std::uint64_t value, unsigned flags) {
  Operation operation;
  operation.is_wait = true;
  operation.bytes = bytes;
  operation.value = value;
  operation.flags = flags;
  return operation;
}

Operation write_operation(unsigned bytes, std::uint64_t value, unsigned flags) {
  Operation operation;
  operation.bytes = bytes;
  operation.value = value;
  operation.flags = flags;
  return operation;
}

/// Checks an operation, and looks up its memory.
CUresult place_operation(Call& call, const Device& device, CUdeviceptr at, Operation& operation) {
  const bool can_flush = call.driver().settings.can_flush;
  const bool flushes = operation.is_wait && (operation.flags & CU_STREAM_WAIT_VALUE_FLUSH) != 0;
  if (flushes && !can_flush) {
    return call.misuse(CUDA_ERROR_NOT_SUPPORTED, "this device cannot flush remote writes");
  }
  if (flushes) operation.flags &= ~unsigned{CU_STREAM_WAIT_VALUE_FLUSH};
  unsigned most = CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER;
  if (operation.is_wait) most = CU_STREAM_WAIT_VALUE_NOR;
  if (operation.flags > most) {
    return call.misuse(CUDA_ERROR_INVALID_VALUE, "flags that do not exist");
  }
  if (at % operation.bytes != 0) {
    return call.misuse(CUDA_ERROR_INVALID_VALUE, "the address is not aligned");
  }
  operation.place = find_place(call, device, pointer(at), operation.bytes, Pageable::refused);
  const AllocationPtr allocation = call.driver().memory.find(pointer(at));
  const bool is_on_device = allocation != nullptr && allocation->kind == MemoryKind::device;
  if (operation.is_wait && is_on_device && can_flush && !flushes) {
    return call.misuse(CUDA_ERROR_INVALID_VALUE, "what other devices wrote may be invisible");
  }
  return call.result();
}

StreamPtr supported_stream(Call& call, CUstream handle) {
  if (call.driver().settings.has_memory_operations) return call.stream(handle);
  call.fail(CUDA_ERROR_NOT_SUPPORTED);
  return nullptr;
}

void enqueue_operations(Call& call, Stream& stream, std::vector<Operation> operations) {
  const bool waits = std::ranges::any_of(operations, &Operation::is_wait);
  const auto run_all = [operations = std::move(operations)](const Run& run) {
    for (const Operation& operation : operations) {
      if (!run.is_aborted()) execute(operation, run);
    }
  };
  enqueue(call.driver(), stream, run_all, {}, waits);
}

CUresult enqueue_one(Call& call, CUstream handle, CUdeviceptr at, Operation operation) {
  if (call.has_failed()) return call.result();
  const StreamPtr stream = supported_stream(call, handle);
  if (stream == nullptr) return call.result();
  if (place_operation(call, *stream->context->device, at, operation) != CUDA_SUCCESS) {
    return call.result();
  }
  enqueue_operations(call, *stream, {std::move(operation)});
  return CUDA_SUCCESS;
}

/// Appends the operation of a batch entry.
CUresult add_entry(Call& call,
                   const Device& device,
                   const CUstreamBatchMemOpParams& entry,
                   std::vector<Operation>& operations) {
  Operation operation;
  CUdeviceptr at = 0;
  const auto& wait = entry.waitValue;
  const auto& write = entry.writeValue;
  switch (entry.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      operation = wait_operation(4, wait.value, wait.flags);
      at = wait.address;
      break;
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      operation = wait_operation(8, wait.value64, wait.flags);
      at = wait.address;
      break;
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      operation = write_operation(4, write.value, write.flags);
      at = write.address;
      break;
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      operation = write_operation(8, write.value64, write.flags);
      at = write.address;
      break;
    // In this driver all memory is coherent, so a barrier does nothing.
    case CU_STREAM_MEM_OP_BARRIER: return CUDA_SUCCESS;
    default: return call.misuse(CUDA_ERROR_NOT_SUPPORTED, "the device has no such operation");
  }
  if (place_operation(call, device, at, operation) == CUDA_SUCCESS) {
    operations.push_back(std::move(operation));
  }
  return call.result();
}

}  // namespace
}  // namespace xylem::fake_cuda

using namespace xylem::fake_cuda;  // NOLINT(google-build-using-namespace)

extern "C" {
// NVIDIA defines these names.
// NOLINTBEGIN(readability-identifier-naming)

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr at, cuuint32_t value, unsigned flags) {
  Call call(__func__, Needs::context);
  return enqueue_one(call, stream, at, write_operation(4, value, flags));
}

CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr at, cuuint64_t value, unsigned flags) {
  Call call(__func__, Needs::context);
  return enqueue_one(call, stream, at, write_operation(8, value, flags));
}

CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr at, cuuint32_t value, unsigned flags) {
  Call call(__func__, Needs::context);
  return enqueue_one(call, stream, at, wait_operation(4, value, flags));
}

CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr at, cuuint64_t value, unsigned flags) {
  Call call(__func__, Needs::context);
  return enqueue_one(call, stream, at, wait_operation(8, value, flags));
}

CUresult cuStreamBatchMemOp(CUstream handle,
                            unsigned count,
                            CUstreamBatchMemOpParams* entries,
                            unsigned flags) {
  Call call(__func__, Needs::context);
  if (call.has_failed() || !call.has(entries)) return call.result();
  const StreamPtr stream = supported_stream(call, handle);
  if (stream == nullptr) return call.result();
  if (flags != 0 || count > kMostOperations) {
    return call.misuse(CUDA_ERROR_INVALID_VALUE, "flags, or more than 256 operations");
  }
  std::vector<Operation> operations;
  for (unsigned i = 0; i < count; ++i) {
    if (add_entry(call, *stream->context->device, entries[i], operations) != CUDA_SUCCESS) {
      return call.result();
    }
  }
  enqueue_operations(call, *stream, std::move(operations));
  return CUDA_SUCCESS;
}

// NOLINTEND(readability-identifier-naming)
}  // extern "C"
