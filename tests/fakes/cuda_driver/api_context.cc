// SPDX-License-Identifier: Apache-2.0
//
// Primary contexts, the context stack of each thread, and access between devices.
#include "fakes/cuda_driver/call.h"

namespace xylem::fake_cuda {
namespace {

CUresult push(Call& call, CUcontext context) {
  ContextStack& stack = context_stack();
  if (stack.count == ContextStack::kMost) {
    return call.misuse(CUDA_ERROR_INVALID_VALUE, "more contexts are pushed than are popped");
  }
  stack.contexts[stack.count++] = context;
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace xylem::fake_cuda

using namespace xylem::fake_cuda;  // NOLINT(google-build-using-namespace)

extern "C" {
// NVIDIA defines these names.
// NOLINTBEGIN(readability-identifier-naming)

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice ordinal) {
  Call call(__func__, Needs::start);
  if (call.has_failed() || !call.has(context)) return call.result();
  Device* device = call.device_at(ordinal);
  if (device == nullptr) return call.result();
  if (device->lost != CUDA_SUCCESS) return call.fail(device->lost);
  if (device->context == nullptr) device->context = call.driver().make_context(*device);
  ++device->retained;
  *context = device->context->handle;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice ordinal) {
  Call call(__func__, Needs::start, DuringCapture::unsafe);
  if (call.has_failed()) return call.result();
  Device* device = call.device_at(ordinal);
  if (device == nullptr) return call.result();
  if (device->retained == 0) {
    return call.misuse(CUDA_ERROR_INVALID_CONTEXT, "released more often than retained");
  }
  if (--device->retained == 0) call.driver().destroy_context(*device, call.lock());
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned* flags, int* is_active) {
  Call call(__func__, Needs::start);
  if (call.has_failed() || !call.has(flags, is_active)) return call.result();
  const Device* device = call.device_at(ordinal);
  if (device == nullptr) return call.result();
  *flags = device->context == nullptr ? 0 : device->context->flags;
  *is_active = device->context == nullptr ? 0 : 1;
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext context) {
  Call call(__func__, Needs::start);
  if (call.has_failed() || call.context_of(context) == nullptr) return call.result();
  return push(call, context);
}

CUresult cuCtxPopCurrent(CUcontext* context) {
  Call call(__func__, Needs::start);
  if (call.has_failed()) return call.result();
  ContextStack& stack = context_stack();
  if (stack.count == 0) return call.misuse(CUDA_ERROR_INVALID_CONTEXT, "no context was pushed");
  if (context != nullptr) *context = stack.top();
  --stack.count;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  Call call(__func__, Needs::start);
  if (call.has_failed()) return call.result();
  ContextStack& stack = context_stack();
  if (context != nullptr && call.context_of(context) == nullptr) return call.result();
  if (stack.count > 0) --stack.count;
  return context == nullptr ? CUDA_SUCCESS : push(call, context);
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  Call call(__func__, Needs::start);
  if (call.has_failed() || !call.has(context)) return call.result();
  *context = context_stack().top();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* ordinal) {
  Call call(__func__, Needs::context_even_if_lost);
  if (call.has_failed() || !call.has(ordinal)) return call.result();
  *ordinal = call.device().ordinal;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext handle, unsigned long long* id) {
  Call call(__func__, Needs::start);
  if (call.has_failed() || !call.has(id)) return call.result();
  const auto context = call.context_of(handle == nullptr ? context_stack().top() : handle);
  if (context == nullptr) return call.result();
  *id = context->id;
  return CUDA_SUCCESS;
}

// Of the flags, only CU_CTX_SYNC_MEMOPS has an effect.
CUresult cuCtxSetFlags(unsigned flags) {
  Call call(__func__, Needs::context);
  if (call.has_failed()) return call.result();
  constexpr unsigned kKnown =
      CU_CTX_SCHED_MASK | CU_CTX_MAP_HOST | CU_CTX_LMEM_RESIZE_TO_MAX | CU_CTX_SYNC_MEMOPS;
  if ((flags & ~kKnown) != 0) {
    return call.misuse(CUDA_ERROR_INVALID_VALUE, "flags that do not exist here");
  }
  call.context().flags = flags;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned* flags) {
  Call call(__func__, Needs::context);
  if (call.has_failed() || !call.has(flags)) return call.result();
  *flags = call.context().flags;
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize() {
  Call call(__func__, Needs::context, DuringCapture::unsafe);
  if (call.has_failed()) return call.result();
  for (const CapturePtr& capture : captures_in(call.driver(), call.context())) {
    call.invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "a stream captures");
  }
  return call.has_failed() ? call.result() : call.wait_for_idle(call.device());
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  Call call(__func__, Needs::context);
  if (call.has_failed()) return call.result();
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = kGreatestPriority;
  return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int* can, CUdevice ordinal, CUdevice peer) {
  Call call(__func__, Needs::start);
  if (call.has_failed() || !call.has(can)) return call.result();
  if (call.device_at(ordinal) == nullptr || call.device_at(peer) == nullptr) return call.result();
  *can = ordinal != peer && call.driver().settings.has_peer_access ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int* value,
                                 CUdevice_P2PAttribute attribute,
                                 CUdevice ordinal,
                                 CUdevice peer) {
  Call call(__func__, Needs::start);
  if (call.has_failed() || !call.has(value)) return call.result();
  if (call.device_at(ordinal) == nullptr || call.device_at(peer) == nullptr) return call.result();
  if (ordinal == peer)
    return call.misuse(CUDA_ERROR_INVALID_DEVICE, "a device is no peer of itself");
  switch (attribute) {
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
      *value = call.driver().settings.has_peer_access ? 1 : 0;
      return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED: *value = 0; return CUDA_SUCCESS;
    default: return call.misuse(CUDA_ERROR_INVALID_VALUE, "an attribute that does not exist here");
  }
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  Call call(__func__, Needs::context, DuringCapture::unsafe);
  if (call.has_failed()) return call.result();
  const auto other = call.context_of(peer);
  if (other == nullptr) return call.result();
  if (flags != 0) return call.misuse(CUDA_ERROR_INVALID_VALUE, "flags must be 0");
  if (other->device == &call.device()) {
    return call.misuse(CUDA_ERROR_INVALID_DEVICE, "a device is no peer of itself");
  }
  if (!call.driver().settings.has_peer_access) {
    return call.misuse(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "cuDeviceCanAccessPeer says so");
  }
  // This is no misuse: two libraries in one process may both enable the access.
  const bool is_new = call.context().peers.insert(other->device->ordinal).second;
  return is_new ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

CUresult cuCtxDisablePeerAccess(CUcontext peer) {
  Call call(__func__, Needs::context, DuringCapture::unsafe);
  if (call.has_failed()) return call.result();
  const auto other = call.context_of(peer);
  if (other == nullptr) return call.result();
  if (call.context().peers.erase(other->device->ordinal) == 0) {
    return call.misuse(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "access was not enabled");
  }
  return CUDA_SUCCESS;
}

// NOLINTEND(readability-identifier-naming)
}  // extern "C"
