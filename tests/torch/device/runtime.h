// SPDX-License-Identifier: Apache-2.0
//
// The runtime of a torch device over the CUDA driver, for tests: devices, streams, and memory. It
// is linked with the stand-in of tests/fakes/cuda_driver, so the host cannot touch its memory, and
// its streams are late.
//
// A stream's id in torch is its CUstream as a number. 0 is the default stream of the driver, and of
// torch.
#pragma once

#include <cuda.h>

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstddef>

namespace standin {

/// Throws, naming the function, unless the driver has succeeded.
void must(CUresult result, const char* function);

int device_count() noexcept;
/// The device of this thread.
c10::DeviceIndex current_device() noexcept;
void set_device(c10::DeviceIndex device);
/// Makes the context of a device current, for calls of the driver.
void use(c10::DeviceIndex device);

c10::Stream current_stream(c10::DeviceIndex device);
/// Returns the stream that was current before.
c10::Stream exchange_stream(const c10::Stream& stream);
/// Streams of a pool, one after the other. Their number is limited, as in torch's pool for CUDA.
c10::Stream stream_from_pool(c10::DeviceIndex device);
CUstream handle_of(const c10::Stream& stream) noexcept;

/// Memory in the order of streams, as torch's allocator for CUDA gives it: a block that is freed is
/// used again at once by the stream for which it was allocated, and by that stream only, unless
/// other streams have been recorded. New memory is overwritten in the order of the stream.
c10::Allocator& allocator();
/// Lets the block be used again only after what the stream has been given when the block is freed.
void record_stream(const c10::DataPtr& memory, const c10::Stream& stream);

/// Pinned memory of the host.
c10::Allocator& pinned_allocator();
/// Whether an address is in such memory.
bool is_pinned(const void* address);

/// Copies between the host and a device, or within a device, in the order of the current stream of
/// the device. To the host: waits for the copy. From the host: the source may be freed at once.
void copy_to_host(void* target, const void* source, std::size_t bytes, c10::DeviceIndex device);
void copy_to_device(void* target, const void* source, std::size_t bytes, c10::DeviceIndex device);
void copy_within_device(void* target,
                        const void* source,
                        std::size_t bytes,
                        c10::DeviceIndex device);

}  // namespace standin
