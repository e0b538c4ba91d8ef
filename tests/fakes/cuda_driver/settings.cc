// SPDX-License-Identifier: Apache-2.0
#include "fakes/cuda_driver/settings.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string_view>

namespace xylem::fake_cuda {
namespace {

[[noreturn]] void refuse(const char* variable, std::string_view text) {
  std::fprintf(stderr, "fake CUDA driver: cannot read %s=%.*s\n", variable,
               static_cast<int>(text.size()), text.data());
  std::abort();
}

std::uint64_t number(const char* variable, std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) refuse(variable, text);
  return value;
}

std::uint64_t number_or(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr || *text == '\0' ? otherwise : number(variable, text);
}

Fault read_fault(std::string_view item) {
  const std::size_t colon = item.find(':');
  const std::size_t equals = item.find('=');
  if (colon == std::string_view::npos || equals == std::string_view::npos || equals < colon) {
    refuse("FAKE_CUDA_FAULTS", item);
  }
  Fault fault;
  fault.function = item.substr(0, colon);
  fault.call = number("FAKE_CUDA_FAULTS", item.substr(colon + 1, equals - colon - 1));
  fault.result = static_cast<CUresult>(number("FAKE_CUDA_FAULTS", item.substr(equals + 1)));
  return fault;
}

void read_faults(Settings& settings) {
  const char* text = std::getenv("FAKE_CUDA_FAULTS");
  std::istringstream items(text == nullptr ? "" : text);
  for (std::string item; std::getline(items, item, ',');) {
    if (item == "unsupported=memops") {
      settings.has_memory_operations = false;
    } else if (item == "unsupported=ipc") {
      settings.has_ipc = false;
    } else if (item == "unsupported=peers") {
      settings.has_peer_access = false;
    } else {
      settings.faults.push_back(read_fault(item));
    }
  }
}

}  // namespace

Settings read_settings() {
  Settings settings;
  settings.devices = static_cast<unsigned>(number_or("FAKE_CUDA_DEVICES", 1));
  settings.memory = number_or("FAKE_CUDA_MEMORY_MB", 4096) << 20;
  const auto connections = std::max<std::uint64_t>(3, number_or("CUDA_DEVICE_MAX_CONNECTIONS", 8));
  settings.queues = static_cast<unsigned>(number_or("FAKE_CUDA_QUEUES", connections - 2));
  settings.seed = number_or("FAKE_CUDA_SEED", 1);
  settings.delay_us = number_or("FAKE_CUDA_DELAY_US", 0);
  settings.version = static_cast<int>(number_or("FAKE_CUDA_VERSION", 13000));
  settings.can_flush = number_or("FAKE_CUDA_FLUSH", 0) != 0;
  settings.has_mps = number_or("FAKE_CUDA_MPS", 0) != 0;
  settings.init = static_cast<CUresult>(number_or("FAKE_CUDA_INIT", 0));
  if (settings.queues == 0) refuse("FAKE_CUDA_QUEUES", "0");
  if (const char* path = std::getenv("FAKE_CUDA_KERNELS")) settings.kernels = path;
  read_faults(settings);
  return settings;
}

bool is_device_lost(CUresult result) noexcept {
  switch (result) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED: return true;
    default: return false;
  }
}

}  // namespace xylem::fake_cuda
