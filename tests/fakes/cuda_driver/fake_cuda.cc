// SPDX-License-Identifier: Apache-2.0
#include "fakes/cuda_driver/call.h"

#include <cstdio>

using namespace xylem::fake_cuda;  // NOLINT(google-build-using-namespace)

extern "C" {

unsigned long fake_cuda_misuses() {
  const std::lock_guard lock(driver_mutex());
  return current_driver()->misuses;
}

const char* fake_cuda_last_misuse() {
  thread_local char text[512];
  const std::lock_guard lock(driver_mutex());
  std::snprintf(text, sizeof text, "%s", current_driver()->last_misuse.c_str());
  return text;
}

void* fake_cuda_host_view(const void* device_address) {
  const std::lock_guard lock(driver_mutex());
  const AllocationPtr allocation = current_driver()->memory.find(device_address);
  return allocation == nullptr ? nullptr : allocation->view(device_address);
}

unsigned long fake_cuda_calls(const char* function) {
  const std::lock_guard lock(driver_mutex());
  const auto& calls = current_driver()->calls;
  const auto at = calls.find(std::string_view(function));
  return at == calls.end() ? 0 : at->second;
}

void fake_cuda_exempt(int is_exempt) { is_thread_exempt() = is_exempt != 0; }

void fake_cuda_forbid_opened(int process) {
  const std::lock_guard lock(driver_mutex());
  current_driver()->forbidden_process = process;
}

void fake_cuda_watch(fake_cuda_watcher watcher) { watcher_of_commands() = watcher; }

size_t fake_cuda_live(const char* kind) {
  const std::lock_guard lock(driver_mutex());
  const Driver& driver = *current_driver();
  const std::string_view name = kind;
  if (name == "context") return driver.contexts.size();
  if (name == "stream") return driver.streams.size();
  if (name == "event") return driver.events.size();
  if (name == "physical") return driver.physical.size();
  if (name == "mapping") return driver.memory.count({MemoryKind::mapped});
  if (name == "reservation") return driver.reservations.size();
  if (name == "graph") return driver.graphs.size() + driver.graph_execs.size();
  if (name == "library") return driver.libraries.size();
  if (name == "memory") {
    return driver.memory.count({MemoryKind::device, MemoryKind::pinned, MemoryKind::managed});
  }
  if (name == "registration") return driver.memory.count({MemoryKind::registered});
  return name == "opened" ? driver.memory.count({MemoryKind::opened}) : 0;
}

void fake_cuda_reset() {
  context_stack().count = 0;
  capture_mode_of_thread() = CU_STREAM_CAPTURE_MODE_GLOBAL;
  reset_driver();
}

}  // extern "C"
