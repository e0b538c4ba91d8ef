// SPDX-License-Identifier: Apache-2.0
//
// The runtime of a torch device over the CUDA driver, for tests: devices, streams and memory. It is
// linked to the stand-in of tests/fakes/cuda_driver. So the host cannot access device memory, and
// streams run late.
//
// The id of a stream in torch is its CUstream as a number. 0 is the default stream, both of the
// driver and of torch.
#pragma once

#include <cuda.h>

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstddef>

namespace standin {

/// Throws an exception with the name of the function if `result` is an error of the driver.
void must(CUresult result, const char* function);

int device_count() noexcept;
/// The current device of this thread.
c10::DeviceIndex current_device() noexcept;
void set_device(c10::DeviceIndex device);
/// Makes the context of a device current, so that the thread can call the driver.
void use(c10::DeviceIndex device);

c10::Stream current_stream(c10::DeviceIndex device);
/// Returns the stream that was current before.
c10::Stream exchange_stream(const c10::Stream& stream);
/// Returns streams of a pool in turn. Their number is limited, as in torch's pool for CUDA.
c10::Stream stream_from_pool(c10::DeviceIndex device);
CUstream handle_of(const c10::Stream& stream) noexcept;

/// Allocates memory in stream order, like torch's allocator for CUDA. The stream for which a block
/// was allocated can reuse it as soon as it is freed. Other streams cannot reuse it. If other
/// streams have been recorded, the block is reused only after their work. New memory is overwritten
/// in the order of the stream.
c10::Allocator& allocator();
/// When the block is freed, it is reused only after the work that is enqueued on `stream` at that
/// time.
void record_stream(const c10::DataPtr& memory, const c10::Stream& stream);

/// Captures what is enqueued on this thread's current stream into a graph. Blocks of memory that
/// are allocated meanwhile are never reused.
void begin_capture();
/// Ends the capture. The graph is never destroyed.
CUgraphExec end_capture();
/// Launches a graph on this thread's current stream.
void launch(CUgraphExec graph);
bool is_capturing(const c10::Stream& stream);

/// Pinned memory of the host.
c10::Allocator& pinned_allocator();
/// True if an address is in pinned memory of pinned_allocator().
bool is_pinned(const void* address);

/// Copy between the host and a device, or within a device, in the order of the device's current
/// stream. copy_to_host() waits for the copy. After copy_to_device(), the source may be freed at
/// once.
void copy_to_host(void* target, const void* source, std::size_t bytes, c10::DeviceIndex device);
void copy_to_device(void* target, const void* source, std::size_t bytes, c10::DeviceIndex device);
void copy_within_device(void* target,
                        const void* source,
                        std::size_t bytes,
                        c10::DeviceIndex device);

}  // namespace standin
