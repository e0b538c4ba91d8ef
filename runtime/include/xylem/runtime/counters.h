// SPDX-License-Identifier: Apache-2.0
//
// Counters: how much work a rank has done, for people who ask where the time of their calls goes.
#pragma once

#include <chrono>
#include <cstdint>

namespace xylem {

/// What one rank has done since its job began. The numbers only grow, so the difference between two
/// reads shows what the calls in between have needed: divide it by the number of these calls.
struct Counters {
  // Sent to other ranks:
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  /// Messages that were announced: their bytes stayed in the sender's memory until the receiver
  /// read them there or asked for them.
  std::uint64_t announced = 0;

  // Turns of the thread that drives this rank's calls, and how many of them handled nothing:
  std::uint64_t turns = 0;
  std::uint64_t idle_turns = 0;

  // On devices:
  /// Copies, reductions and scalings that were enqueued for calls without a mesh.
  std::uint64_t pieces = 0;
  /// Bytes that were copied between device memory and host memory, since they could not stay in
  /// device memory on their way to or from another rank. Bytes that are written to host memory and
  /// read from there count twice.
  std::uint64_t staged_bytes = 0;
  /// Bytes that calls on meshes have copied to and from staging memory on the device, since not all
  /// ranks could access a buffer. A captured call counts once, and not for each launch.
  std::uint64_t mesh_copied_bytes = 0;
  /// Calls of functions of the CUDA driver by the job's devices. The driver is also asked once
  /// about each buffer whose memory is not stated; this is not counted.
  std::uint64_t driver_calls = 0;
  /// Time of all threads with the driver's context, most of which is spent in the driver.
  std::chrono::nanoseconds driver_time{0};

  Counters& operator-=(const Counters& earlier) noexcept {
    messages -= earlier.messages;
    bytes -= earlier.bytes;
    announced -= earlier.announced;
    turns -= earlier.turns;
    idle_turns -= earlier.idle_turns;
    pieces -= earlier.pieces;
    staged_bytes -= earlier.staged_bytes;
    mesh_copied_bytes -= earlier.mesh_copied_bytes;
    driver_calls -= earlier.driver_calls;
    driver_time -= earlier.driver_time;
    return *this;
  }
  friend Counters operator-(Counters later, const Counters& earlier) noexcept {
    return later -= earlier;
  }
};

}  // namespace xylem
