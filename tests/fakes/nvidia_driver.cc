// SPDX-License-Identifier: Apache-2.0
//
// A fake of the functions of NVML and the CUDA driver that discovery calls, for machines without
// NVIDIA's driver. The environment variable FAKE_NVIDIA_DRIVER names a file that describes the
// GPUs, with one item on each line:
//
//   gpu BUS_ID UUID MAJOR MINOR NAME…
//   link BUS_ID TYPE                    a link of the GPU above; TYPE is 0 to a GPU, 2 to a switch
//   down                                a link of the GPU above that is not up
//   mig UUID NAME…                      an instance of the GPU above
//   memory BYTES MEGAHERTZ BITS         memory of the GPU above, its clock and its bus
//   pcie LANES MOST_LANES GENERATION    the PCIe link of the GPU above
//   attribute NUMBER VALUE              a CU_DEVICE_ATTRIBUTE of the GPU above
//   pair A B STATUS                     nvmlGpuP2PStatus_t of two GPUs, by their places in the file
//   version DRIVER CUDA                 such as "580.65.06 13000"
//   fails FUNCTION                      this function of either library fails
//   count N                             the number of GPUs that the libraries report, in place of
//                                       the right one
//
// Without this file, the libraries do not start, as on a machine without NVIDIA's kernel module.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>
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
  unsigned long long memory = 0;
  unsigned megahertz = 0, bits = 0;
  unsigned lanes = 0, most_lanes = 0, generation = 0;
  std::map<int, int> attributes;
  std::vector<FakeLink> links;
  std::vector<Device> instances;
};

std::vector<Device> devices;
std::map<std::pair<const Device*, const Device*>, int> pairs;
std::set<std::string> failing;
std::string driver_version;
int cuda_version = 0;
long long reported_count = -1;
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
  pairs.clear();
  failing.clear();
  driver_version.clear();
  cuda_version = 0;
  reported_count = -1;
  std::vector<std::array<std::size_t, 3>> pair_lines;
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
    } else if (word == "memory") {
      line >> devices.back().memory >> devices.back().megahertz >> devices.back().bits;
    } else if (word == "pcie") {
      line >> devices.back().lanes >> devices.back().most_lanes >> devices.back().generation;
    } else if (word == "attribute") {
      int number = 0;
      line >> number;
      line >> devices.back().attributes[number];
    } else if (word == "pair") {
      auto& [a, b, status] = pair_lines.emplace_back();
      line >> a >> b >> status;
    } else if (word == "version") {
      line >> driver_version >> cuda_version;
    } else if (word == "fails") {
      line >> word;
      failing.insert(word);
    } else if (word == "count") {
      line >> reported_count;
    }
  }
  for (const auto& [a, b, status] : pair_lines) {
    pairs[{&devices.at(a), &devices.at(b)}] = static_cast<int>(status);
    pairs[{&devices.at(b), &devices.at(a)}] = static_cast<int>(status);
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

bool fails(const char* function) { return failing.contains(function); }

int tell(const char* function, unsigned value, unsigned* target) {
  if (fails(function) || value == 0) return kFailure;
  *target = value;
  return kSuccess;
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
  *count = static_cast<unsigned>(reported_count < 0 ? devices.size() : reported_count);
  return opened > 0 && !fails(__func__) ? kSuccess : kFailure;
}
FAKE nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (index >= devices.size()) return kFailure;
  // This GPU has fallen off the bus.
  if (devices[index].name == "lost") return kFailure;
  *device = &devices[index];
  return kSuccess;
}
FAKE nvmlDeviceGetPciInfo_v3(void* device, void* pci) {
  return fails(__func__) ? kFailure : copy(at(device).bus_id, pci);
}
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
  *count = fails("mig count") ? 4'000'000'000 : 7;
  return kSuccess;
}
FAKE nvmlDeviceGetMigDeviceHandleByIndex(void* device, unsigned index, void** instance) {
  if (index >= at(device).instances.size()) return kFailure;
  *instance = &at(device).instances[index];
  return kSuccess;
}

FAKE nvmlDeviceGetMemoryInfo(void* device, void* target) {
  if (fails(__func__)) return kFailure;
  const unsigned long long memory[] = {at(device).memory, 0, at(device).memory};
  std::memcpy(target, memory, sizeof memory);
  return kSuccess;
}
FAKE nvmlDeviceGetMemoryBusWidth(void* device, unsigned* bits) {
  return tell(__func__, at(device).bits, bits);
}
FAKE nvmlDeviceGetMaxClockInfo(void* device, int type, unsigned* megahertz) {
  return type == 2 ? tell(__func__, at(device).megahertz, megahertz) : kFailure;
}
FAKE nvmlDeviceGetCurrPcieLinkWidth(void* device, unsigned* lanes) {
  return tell(__func__, at(device).lanes, lanes);
}
FAKE nvmlDeviceGetMaxPcieLinkWidth(void* device, unsigned* lanes) {
  return tell(__func__, at(device).most_lanes, lanes);
}
FAKE nvmlDeviceGetMaxPcieLinkGeneration(void* device, unsigned* generation) {
  return tell(__func__, at(device).generation, generation);
}
FAKE nvmlDeviceGetP2PStatus(void* a, void* b, int capability, int* status) {
  const auto told = pairs.find({&at(a), &at(b)});
  if (fails(__func__) || told == pairs.end() || capability > 1) return kFailure;
  *status = told->second;
  return kSuccess;
}
FAKE nvmlSystemGetDriverVersion(char* text, unsigned size) {
  return fails(__func__) ? kFailure : copy(driver_version, text, size);
}
FAKE nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = cuda_version;
  return fails(__func__) ? kFailure : kSuccess;
}

FAKE cuInit(unsigned) { return start(); }
FAKE cuDriverGetVersion(int* version) {
  *version = cuda_version;
  return kSuccess;
}
FAKE cuDeviceTotalMem_v2(std::size_t* bytes, int device) {
  *bytes = devices[static_cast<std::size_t>(device)].memory;
  return fails(__func__) ? kFailure : kSuccess;
}
FAKE cuDeviceCanAccessPeer(int* can, int a, int b) {
  const auto told = pairs.find(
      {&devices.at(static_cast<std::size_t>(a)), &devices.at(static_cast<std::size_t>(b))});
  if (fails(__func__) || told == pairs.end()) return kFailure;
  *can = told->second == 0 ? 1 : 0;
  return kSuccess;
}
FAKE cuDeviceGetCount(int* count) {
  *count = static_cast<int>(reported_count < 0 ? static_cast<long long>(devices.size())
                                               : reported_count);
  return kSuccess;
}
FAKE cuDeviceGet(int* device, int index) {
  if (index < 0 || static_cast<std::size_t>(index) >= devices.size()) return kFailure;
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
  const auto given = of.attributes.find(attribute);
  if (given == of.attributes.end() && attribute != 75 && attribute != 76) return kFailure;
  *value = given != of.attributes.end() ? given->second : attribute == 75 ? of.major : of.minor;
  return kSuccess;
}
// NOLINTEND(readability-identifier-naming)
