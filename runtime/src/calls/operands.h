// SPDX-License-Identifier: Apache-2.0
//
// Operands: where the bytes of an operation are (the user's buffers, scratch, the memory and the
// stream of a device), and how they are made ready before the operation starts.
#pragma once

#include "calls/operation.h"
#include "wires/compute_devices.h"
#include "xylem/base/status.h"

namespace xylem::runtime {

/// If the buffers of the call are on a device, selects that device to compute the operation.
void place_on_device(Operation& operation, const ComputeDevices& devices);
/// Allocates scratch of the plan, or host memory for a message that is staged. Called without the
/// token, since the system takes long to allocate and free large memory, and a device's driver may
/// wait for the device. A failed allocation is reported later, where the memory is used.
void reserve_memory(Operation& operation, bool is_staged);
/// Makes the operation wait for all earlier work on the stream of its call. If Call::holds_stream
/// is set, later work on the stream waits for the operation. Called by the thread that makes the
/// call, without the token, since the driver may wait for its device. All other driver calls for
/// the operation must precede this one, since they might wait for the stream.
Status join_stream(Operation& operation);
/// Sets the addresses of a program's buffers. False if its scratch cannot be allocated.
bool set_up_run(
    Run& run, const Program& program, const void* input, void* output, double factor) noexcept;

}  // namespace xylem::runtime
