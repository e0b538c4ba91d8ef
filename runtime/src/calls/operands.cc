// SPDX-License-Identifier: Apache-2.0
#include "calls/operands.h"

#include <utility>

namespace xylem::runtime {
namespace {

/// Bytes of host scratch that a program needs. Without device scratch, host scratch replaces it.
std::uint64_t host_scratch_bytes(const Program& program, bool has_device_scratch) noexcept {
  return program.host_scratch_bytes() + (has_device_scratch ? 0 : program.device_scratch_bytes());
}

}  // namespace

void place_on_device(Operation& operation, const ComputeDevices& devices) {
  const Call& call = operation.call;
  if (call.memory.kind == MemoryKind::host) return;
  auto& placed = operation.run.device;
  placed.compute = devices.of(call.memory).value();  // Cannot fail: the call was checked.
  for (const collectives::Buffer buffer :
       {collectives::Buffer::input, collectives::Buffer::output}) {
    placed.memory[static_cast<int>(buffer)] = call.memory;
  }
}

void reserve_memory(Operation& operation, Staging staging) {
  Run& run = operation.run;
  if (operation.plan != nullptr) {
    const Program& program = *operation.plan->program;
    const bool has_device_scratch =
        run.device.compute != nullptr && program.device_scratch_bytes() > 0 &&
        run.device_scratch.reserve(program.device_scratch_bytes(), run.device.compute) != nullptr;
    const std::uint64_t on_host = host_scratch_bytes(program, has_device_scratch);
    run.scratch.reserve(on_host, run.device.compute);
    // The device computes partial results on the host if there is no scratch on the device.
    const bool is_used = operation.plan->is_staged || on_host > program.host_scratch_bytes();
    if (on_host > 0 && is_used) (void)run.scratch.pin();
  } else if (staging != Staging::never) {
    run.staged.reserve(operation.call.count * size_of(operation.call.type), run.device.compute);
    if (staging == Staging::always) (void)run.staged.pin();
  }
}

Status join_stream(Operation& operation) {
  if (!operation.call.stream) return {};
  auto& placed = operation.run.device;
  void* const stream = operation.call.stream->handle;
  XYLEM_TRY(placed.gate, placed.compute->gate_after(stream));
  if (!operation.call.holds_stream) return {};
  auto end = placed.compute->gate_before(stream);
  if (end) {
    placed.end = *end;
  } else {
    placed.compute->forget(std::exchange(placed.gate, {}));
  }
  return end.status();
}

bool set_up_run(
    Run& run, const Program& program, const void* input, void* output, double factor) noexcept {
  run.program = &program;
  // verify() has proved that the program does not write to `input`, so this cast is safe.
  run.base[0] = static_cast<std::byte*>(const_cast<void*>(input));
  run.base[1] = static_cast<std::byte*>(output);
  execution::Compute* const device = run.device.compute;
  run.factor = factor;
  constexpr int kScratch = static_cast<int>(collectives::Buffer::scratch);
  if (device == nullptr) {
    run.base[kScratch] = run.scratch.reserve(program.host_scratch_bytes(), device);
    return run.base[kScratch] != nullptr || program.host_scratch_bytes() == 0;
  }
  std::byte* on_device = nullptr;
  if (program.device_scratch_bytes() > 0) {
    on_device = run.device_scratch.reserved(program.device_scratch_bytes(), device);
  }
  const std::uint64_t on_host = host_scratch_bytes(program, on_device != nullptr);
  run.base[kScratch] = run.base[execution::kDeviceScratch] = run.scratch.reserved(on_host, device);
  if (on_device != nullptr) {
    run.base[execution::kDeviceScratch] = on_device - program.host_scratch_bytes();
    run.device.memory[execution::kDeviceScratch] = run.device.memory[0];
  }
  return run.base[kScratch] != nullptr || on_host == 0;
}

}  // namespace xylem::runtime
