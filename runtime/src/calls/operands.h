// SPDX-License-Identifier: Apache-2.0
//
// Operands: the memory that an operation uses (the user's buffers, scratch, the memory and the
// stream of a device), and its preparation before the operation starts.
#pragma once

#include "calls/operation.h"
#include "wires/compute_devices.h"
#include "xylem/base/status.h"

#include <cstdint>

namespace xylem::runtime {

/// If the buffers of the operation's call are in device memory, makes that device compute the
/// operation.
void place_on_device(Operation& operation, const ComputeDevices& devices);
/// Whether a message from or to a device passes through host memory.
enum class Staging : std::uint8_t {
  never,
  if_needed,  ///< A receive, if the device cannot read its message where the sender has it.
  always,
};
/// Allocates the scratch of the operation's plan or, if its message may be staged, host memory for
/// the message. Pins the memory if the device will certainly access it; otherwise it is pinned when
/// the device first does. Call this without the token: the system takes long to allocate, pin and
/// free large memory, and the driver may wait for its device. If this fails, the function that
/// later uses the memory reports the failure.
void reserve_memory(Operation& operation, Staging staging);
/// Makes the operation wait for all earlier work on the stream of its call. If Call::holds_stream
/// is set, later work on the stream waits for the operation. Called by the thread that makes the
/// call, without the token, since the driver may wait for its device. Make all other driver calls
/// for the operation before this one: a later driver call might wait for the stream, which waits
/// for the operation.
Status join_stream(Operation& operation);
/// Sets the program of `run`, its factor, and the addresses of its buffers. False if scratch for
/// the program cannot be allocated.
bool set_up_run(
    Run& run, const Program& program, const void* input, void* output, double factor) noexcept;

}  // namespace xylem::runtime
