// SPDX-License-Identifier: Apache-2.0
//
// Copies and fills. The time at which a call returns follows CUDA's "API synchronization behavior":
//
// - From pageable host memory: the call reads the bytes before it returns. They are written later.
// - To pageable host memory, and from host to host: the call returns when the copy is done.
// - All other asynchronous calls return at once.
// - In a capturing stream, no call waits. Pageable memory is read when the graph runs.
// - Synchronous calls use the NULL stream. If they copy from pageable host memory or device memory
//   to device memory, they may return before the bytes have been written, unless SYNC_MEMOPS is set
//   for the memory or the context.
#include "fakes/cuda_driver/access.h"

#include <cstring>

namespace xylem::fake_cuda {
namespace {

struct Copy {
  Place target, source;
  std::size_t bytes = 0;
  std::vector<std::byte> staged;  ///< The bytes that were read from pageable memory.
};

CommandPtr enqueue_copy(Call& call, Stream& stream, Copy copy) {
  if (copy.source.is_pageable() && !copy.target.is_host() && stream.capture == nullptr) {
    copy.staged.assign(copy.source.view, copy.source.view + copy.bytes);
  }
  auto shared = std::make_shared<Copy>(std::move(copy));
  return enqueue(call.driver(), stream, [shared](const Run& run) {
    if (!is_still_there(run, shared->target) || !is_still_there(run, shared->source)) return;
    const Watched watched(run, "copy", shared->bytes);
    const bool is_staged = !shared->staged.empty();
    std::memmove(shared->target.view, is_staged ? shared->staged.data() : shared->source.view,
                 shared->bytes);
  });
}

/// True if synchronous calls on the memory always wait for the device.
bool is_synchronous(const Call& call, const Place& place) {
  return place.is_synchronous() || (call.context().flags & CU_CTX_SYNC_MEMOPS) != 0;
}

bool returns_when_done(const Copy& copy) {
  return copy.target.is_pageable() || (copy.target.is_host() && copy.source.is_host());
}

struct Sides {
  Pageable target = Pageable::allowed, source = Pageable::allowed;
  Peers peers = Peers::need_access;
};

CUresult copy_in(
    Call& call, CUstream handle, CUdeviceptr to, CUdeviceptr from, std::size_t bytes, Sides sides) {
  const StreamPtr stream = call.stream(handle);
  if (stream == nullptr || bytes == 0) return call.result();
  const Device& device = *stream->context->device;
  Copy copy;
  copy.bytes = bytes;
  copy.target = find_place(call, device, pointer(to), bytes, sides.target, sides.peers);
  copy.source = find_place(call, device, pointer(from), bytes, sides.source, sides.peers);
  if (call.has_failed()) return call.result();
  const bool waits = returns_when_done(copy);
  const CommandPtr command = enqueue_copy(call, *stream, std::move(copy));
  return waits ? call.wait({command}, device) : CUDA_SUCCESS;
}

CUresult copy_now(Call& call, CUdeviceptr to, CUdeviceptr from, std::size_t bytes, Sides sides) {
  const StreamPtr stream = call.stream(nullptr);
  if (stream == nullptr || bytes == 0) return call.result();
  const Device& device = *stream->context->device;
  Copy copy;
  copy.bytes = bytes;
  copy.target = find_place(call, device, pointer(to), bytes, sides.target, sides.peers);
  copy.source = find_place(call, device, pointer(from), bytes, sides.source, sides.peers);
  if (call.has_failed()) return call.result();
  const bool is_pinned = copy.source.is_host() && !copy.source.is_pageable();
  const bool waits = copy.target.is_host() || is_pinned || is_synchronous(call, copy.target) ||
                     is_synchronous(call, copy.source);
  const CommandPtr command = enqueue_copy(call, *stream, std::move(copy));
  return waits ? call.wait({command}, device) : CUDA_SUCCESS;
}

/// Fills memory with `count` elements. A synchronous fill waits only if the memory is host memory,
/// or if SYNC_MEMOPS is set.
template <typename Element>
CUresult fill(Call& call,
              CUstream handle,
              CUdeviceptr address,
              Element value,
              std::size_t count,
              bool is_asynchronous) {
  const StreamPtr stream = call.stream(handle);
  if (stream == nullptr || count == 0) return call.result();
  if (address % sizeof(Element) != 0) {
    return call.misuse(CUDA_ERROR_INVALID_VALUE, "the address is not aligned");
  }
  const Device& device = *stream->context->device;
  const Place place =
      find_place(call, device, pointer(address), count * sizeof(Element), Pageable::refused);
  if (call.has_failed()) return call.result();
  const bool waits = !is_asynchronous && (place.is_host() || is_synchronous(call, place));
  const CommandPtr command = enqueue(call.driver(), *stream, [place, value, count](const Run& run) {
    if (!is_still_there(run, place)) return;
    auto* elements = reinterpret_cast<Element*>(place.view);
    for (std::size_t i = 0; i < count; ++i) elements[i] = value;
  });
  return waits ? call.wait({command}, device) : CUDA_SUCCESS;
}

CUdeviceptr address_of(const void* host) { return reinterpret_cast<CUdeviceptr>(host); }

}  // namespace
}  // namespace xylem::fake_cuda

using namespace xylem::fake_cuda;  // NOLINT(google-build-using-namespace)

extern "C" {
// NVIDIA defines these names.
// NOLINTBEGIN(readability-identifier-naming)

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  Call call(__func__, Needs::context);
  return call.has_failed() ? call.result() : copy_in(call, stream, to, from, bytes, {});
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  Call call(__func__, Needs::context);
  if (call.has_failed()) return call.result();
  return copy_in(call, stream, to, from, bytes, {Pageable::refused, Pageable::refused});
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  Call call(__func__, Needs::context);
  if (call.has_failed()) return call.result();
  return copy_in(call, stream, to, address_of(from), bytes, {Pageable::refused});
}

CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  Call call(__func__, Needs::context);
  if (call.has_failed()) return call.result();
  return copy_in(call, stream, address_of(to), from, bytes, {Pageable::allowed, Pageable::refused});
}

CUresult cuMemcpyPeerAsync(CUdeviceptr to,
                           CUcontext to_context,
                           CUdeviceptr from,
                           CUcontext from_context,
                           size_t bytes,
                           CUstream stream) {
  Call call(__func__, Needs::context);
  if (call.has_failed()) return call.result();
  if (call.context_of(to_context) == nullptr || call.context_of(from_context) == nullptr) {
    return call.result();
  }
  return copy_in(call, stream, to, from, bytes, {Pageable::refused, Pageable::refused, Peers::any});
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  Call call(__func__, Needs::context, DuringCapture::unsafe);
  return call.has_failed() ? call.result() : copy_now(call, to, from, bytes, {});
}

CUresult cuMemcpyPeer(
    CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes) {
  Call call(__func__, Needs::context, DuringCapture::unsafe);
  if (call.has_failed()) return call.result();
  if (call.context_of(to_context) == nullptr || call.context_of(from_context) == nullptr) {
    return call.result();
  }
  return copy_now(call, to, from, bytes, {Pageable::refused, Pageable::refused, Peers::any});
}

CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  Call call(__func__, Needs::context, DuringCapture::unsafe);
  if (call.has_failed()) return call.result();
  return copy_now(call, to, from, bytes, {Pageable::refused, Pageable::refused});
}

CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, size_t bytes) {
  Call call(__func__, Needs::context, DuringCapture::unsafe);
  if (call.has_failed()) return call.result();
  return copy_now(call, to, address_of(from), bytes, {Pageable::refused});
}

CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, size_t bytes) {
  Call call(__func__, Needs::context, DuringCapture::unsafe);
  if (call.has_failed()) return call.result();
  return copy_now(call, address_of(to), from, bytes, {Pageable::allowed, Pageable::refused});
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  Call call(__func__, Needs::context);
  return call.has_failed() ? call.result() : fill(call, stream, to, value, count, true);
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
  Call call(__func__, Needs::context);
  return call.has_failed() ? call.result() : fill(call, stream, to, value, count, true);
}

CUresult cuMemsetD8(CUdeviceptr to, unsigned char value, size_t count) {
  Call call(__func__, Needs::context, DuringCapture::unsafe);
  return call.has_failed() ? call.result() : fill(call, nullptr, to, value, count, false);
}

// NOLINTEND(readability-identifier-naming)
}  // extern "C"
