// SPDX-License-Identifier: Apache-2.0
//
// A fake of the functions of NVML and the CUDA driver that discovery calls, for machines without
// NVIDIA's driver. The environment variable FAKE_NVIDIA_DRIVER names a file with the GPUs, one item
// a line:
//
//   gpu BUS_ID UUID MAJOR MINOR NAME…
//   link BUS_ID TYPE                    a link of the GPU above; TYPE is 0 to a GPU, 2 to a switch
//   down                                a link of the GPU above that is not up
//   mig UUID NAME…                      an instance of the GPU above
//
// Without that file the libraries do not start, as on a machine where no kernel module is loaded.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr int kSuccess = 0;
constexpr int kFailure = 999;

struct FakeLink {
  bool is_up = true;
  std::string bus_id;
  int type = 0;
};

struct Device {
  std::string bus_id, uuid, name;
  int major = 0, minor = 0;
  std::vector<FakeLink> links;
  std::vector<Device> instances;
};

std::vector<Device> devices;
int opened = 0;

std::string rest_of(std::istream& line) {
  std::string text;
  std::getline(line >> std::ws, text);
  return text;
}

int start() {
  const char* path = std::getenv("FAKE_NVIDIA_DRIVER");
  std::ifstream file(path == nullptr ? "" : path);
  if (!file) return kFailure;
  devices.clear();
  for (std::string text; std::getline(file, text);) {
    std::istringstream line(text);
    std::string word;
    line >> word;
    if (word == "gpu") {
      Device& device = devices.emplace_back();
      line >> device.bus_id >> device.uuid >> device.major >> device.minor;
      device.name = rest_of(line);
    } else if (word == "link") {
      FakeLink& link = devices.back().links.emplace_back();
      line >> link.bus_id >> link.type;
    } else if (word == "down") {
      devices.back().links.push_back({false, "", 0});
    } else if (word == "mig") {
      Device& instance = devices.back().instances.emplace_back();
      line >> instance.uuid;
      instance.name = rest_of(line);
    }
  }
  ++opened;
  return kSuccess;
}

int copy(const std::string& text, char* target, std::size_t size) {
  if (text.size() >= size) return kFailure;
  std::memcpy(target, text.c_str(), text.size() + 1);
  return kSuccess;
}

struct PciInfo {
  std::array<char, 16> bus_id_legacy;
  unsigned domain, bus, device;
  unsigned device_id, subsystem_id;
  std::array<char, 32> bus_id;
};

int copy(const std::string& bus_id, void* info) {
  auto& pci = *static_cast<PciInfo*>(info);
  return copy(bus_id, pci.bus_id.data(), pci.bus_id.size());
}

Device& at(void* handle) { return *static_cast<Device*>(handle); }

}  // namespace

// The names are given by NVIDIA's libraries.
// NOLINTBEGIN(readability-identifier-naming)
#define FAKE extern "C" __attribute__((visibility("default"))) int

FAKE nvmlInit_v2() { return start(); }
FAKE nvmlShutdown() {
  --opened;
  return kSuccess;
}
extern "C" __attribute__((visibility("default"))) const char* nvmlErrorString(int result) {
  return result == kSuccess ? "The operation was successful" : "Unknown Error";
}
FAKE nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(devices.size());
  return opened > 0 ? kSuccess : kFailure;
}
FAKE nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  // This GPU has fallen off the bus.
  if (devices[index].name == "lost") return kFailure;
  *device = &devices[index];
  return kSuccess;
}
FAKE nvmlDeviceGetPciInfo_v3(void* device, void* pci) { return copy(at(device).bus_id, pci); }
FAKE nvmlDeviceGetName(void* device, char* name, unsigned size) {
  return copy(at(device).name, name, size);
}
FAKE nvmlDeviceGetUUID(void* device, char* uuid, unsigned size) {
  return copy(at(device).uuid, uuid, size);
}
FAKE nvmlDeviceGetCudaComputeCapability(void* device, int* major, int* minor) {
  *major = at(device).major;
  *minor = at(device).minor;
  return kSuccess;
}
FAKE nvmlDeviceGetNvLinkState(void* device, unsigned link, unsigned* state) {
  if (link >= at(device).links.size()) return kFailure;
  *state = at(device).links[link].is_up ? 1 : 0;
  return kSuccess;
}
FAKE nvmlDeviceGetNvLinkRemotePciInfo_v2(void* device, unsigned link, void* pci) {
  return copy(at(device).links[link].bus_id, pci);
}
FAKE nvmlDeviceGetNvLinkRemoteDeviceType(void* device, unsigned link, int* type) {
  *type = at(device).links[link].type;
  return kSuccess;
}
FAKE nvmlDeviceGetMigMode(void* device, unsigned* current, unsigned* pending) {
  *current = *pending = at(device).instances.empty() ? 0 : 1;
  return kSuccess;
}
FAKE nvmlDeviceGetMaxMigDeviceCount(void*, unsigned* count) {
  *count = 7;
  return kSuccess;
}
FAKE nvmlDeviceGetMigDeviceHandleByIndex(void* device, unsigned index, void** instance) {
  if (index >= at(device).instances.size()) return kFailure;
  *instance = &at(device).instances[index];
  return kSuccess;
}

FAKE cuInit(unsigned) { return start(); }
FAKE cuDeviceGetCount(int* count) {
  *count = static_cast<int>(devices.size());
  return kSuccess;
}
FAKE cuDeviceGet(int* device, int index) {
  *device = index;
  return kSuccess;
}
FAKE cuDeviceGetPCIBusId(char* text, int size, int device) {
  return copy(devices[static_cast<std::size_t>(device)].bus_id, text,
              static_cast<std::size_t>(size));
}
FAKE cuDeviceGetName(char* text, int size, int device) {
  return copy(devices[static_cast<std::size_t>(device)].name, text, static_cast<std::size_t>(size));
}
FAKE cuDeviceGetUuid_v2(void* uuid, int device) {
  auto* bytes = static_cast<unsigned char*>(uuid);
  for (int i = 0; i < 16; ++i) bytes[i] = static_cast<unsigned char>(16 * device + i);
  return kSuccess;
}
FAKE cuDeviceGetAttribute(int* value, int attribute, int device) {
  const Device& of = devices[static_cast<std::size_t>(device)];
  *value = attribute == 75 ? of.major : of.minor;
  return attribute == 75 || attribute == 76 ? kSuccess : kFailure;
}
// NOLINTEND(readability-identifier-naming)
