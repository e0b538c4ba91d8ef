// SPDX-License-Identifier: Apache-2.0
#include "nvidia.h"

#include "gpu_links.h"
#include "text.h"

#include <fmt/format.h>

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <tuple>

namespace xylem::topology::nvidia {
namespace {

class Library {
 public:
  explicit Library(const std::string& name, int flags = 0)
      : handle_(name.empty() ? nullptr : dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | flags)) {}

  explicit operator bool() const { return handle_ != nullptr; }

  /// False if the library is too old to have the function.
  template <typename Function>
  bool find(const char* name, Function*& function) const {
    function = reinterpret_cast<Function*>(dlsym(handle_.get(), name));
    return function != nullptr;
  }

 private:
  struct Close {
    void operator()(void* handle) const noexcept { dlclose(handle); }
  };
  std::unique_ptr<void, Close> handle_;
};

/// The text that `call` writes, given a buffer and its size.
template <typename Call>
std::string text_of(Call&& call) {
  std::array<char, 128> text{};
  if (!call(text.data(), static_cast<unsigned>(text.size()))) return {};
  text.back() = '\0';
  return clean_text(text.data());
}

std::string architecture_of(int major, int minor) {
  return major <= 0 ? std::string() : fmt::format("{}{}", kCudaPrefix, major * 10 + minor);
}

// ---- NVML: https://docs.nvidia.com/deploy/nvml-api, whose names are used here ----

constexpr int kNvmlSuccess = 0;
constexpr unsigned kMostNvLinks = 18;  // NVML_NVLINK_MAX_LINKS
constexpr unsigned kEnabled = 1;       // NVML_FEATURE_ENABLED, NVML_DEVICE_MIG_ENABLE
// NVML_NVLINK_DEVICE_TYPE_IBMNPU, _SWITCH, _UNKNOWN
constexpr int kDeviceTypeNpu = 1;
constexpr int kDeviceTypeSwitch = 2;
constexpr int kDeviceTypeUnknown = 255;

using NvmlDevice = void*;  // nvmlDevice_t

/// Has the layout of the nvmlPciInfo_t that the functions ending in _v2 and _v3 use. It is passed
/// to them as void*.
struct NvmlPciInfo {
  std::array<char, 16> bus_id_legacy;
  unsigned domain, bus, device;
  unsigned device_id, subsystem_id;
  std::array<char, 32> bus_id;
};

class Nvml {
 public:
  explicit Nvml(const std::string& name) : library_(name) {
    if (!library_ || !find_functions() || init_() != kNvmlSuccess) return;
    is_open_ = true;
  }
  ~Nvml() {
    if (is_open_) shutdown_();
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  bool is_open() const { return is_open_; }

  std::vector<GpuFacts> gpus() const {
    std::vector<GpuFacts> result;
    unsigned count = 0;
    if (count_(&count) != kNvmlSuccess) return result;
    for (unsigned i = 0; i < count; ++i) {
      NvmlDevice device = nullptr;
      // The GPU has fallen off the bus, or access is denied.
      if (at_(i, &device) != kNvmlSuccess) continue;
      if (auto gpu = gpu_of(device)) result.push_back(*std::move(gpu));
    }
    return result;
  }

 private:
  bool find_functions() {
    // Later versions of NVML added these. If one is missing, its facts stay unknown.
    library_.find("nvmlDeviceGetCudaComputeCapability", capability_);
    library_.find("nvmlDeviceGetNvLinkState", link_state_);
    library_.find("nvmlDeviceGetNvLinkRemotePciInfo_v2", link_target_);
    library_.find("nvmlDeviceGetNvLinkRemoteDeviceType", link_type_);
    library_.find("nvmlDeviceGetMigMode", mig_mode_);
    library_.find("nvmlDeviceGetMaxMigDeviceCount", mig_count_);
    library_.find("nvmlDeviceGetMigDeviceHandleByIndex", mig_at_);
    return library_.find("nvmlInit_v2", init_) && library_.find("nvmlShutdown", shutdown_) &&
           library_.find("nvmlDeviceGetCount_v2", count_) &&
           library_.find("nvmlDeviceGetHandleByIndex_v2", at_) &&
           library_.find("nvmlDeviceGetPciInfo_v3", pci_) &&
           library_.find("nvmlDeviceGetName", name_) && library_.find("nvmlDeviceGetUUID", uuid_);
  }

  std::optional<GpuFacts> gpu_of(NvmlDevice device) const {
    NvmlPciInfo pci{};
    if (pci_(device, &pci) != kNvmlSuccess) return std::nullopt;
    const auto address = address_of(pci);
    if (!address) return std::nullopt;
    GpuFacts gpu;
    gpu.address = *address;
    gpu.id = {static_cast<std::uint16_t>(pci.device_id),
              static_cast<std::uint16_t>(pci.device_id >> 16),
              static_cast<std::uint16_t>(pci.subsystem_id),
              static_cast<std::uint16_t>(pci.subsystem_id >> 16)};
    gpu.model = name_of(device);
    gpu.uuid = uuid_of(device);
    int major = 0, minor = 0;
    if (capability_ != nullptr && capability_(device, &major, &minor) == kNvmlSuccess) {
      gpu.architecture = architecture_of(major, minor);
    }
    gpu.partitions = partitions_of(device);
    gpu.links = links_of(device);
    return gpu;
  }

  std::string name_of(NvmlDevice device) const {
    return text_of(
        [&](char* text, unsigned size) { return name_(device, text, size) == kNvmlSuccess; });
  }
  std::string uuid_of(NvmlDevice device) const {
    return text_of(
        [&](char* text, unsigned size) { return uuid_(device, text, size) == kNvmlSuccess; });
  }

  /// Parses "00000000:3B:00.0"; nothing if NVML hides the address ("FFFFFFFF:FF:FF.0").
  static std::optional<PciAddress> address_of(NvmlPciInfo& pci) {
    pci.bus_id.back() = '\0';
    const std::string text(pci.bus_id.data());
    const auto address = PciAddress::parse(text);
    if (!address || text.starts_with("FFFF") || text.starts_with("ffff")) return std::nullopt;
    return *address;
  }

  std::vector<Partition> partitions_of(NvmlDevice device) const {
    std::vector<Partition> result;
    unsigned current = 0, pending = 0, count = 0;
    if (mig_mode_ == nullptr || mig_count_ == nullptr || mig_at_ == nullptr ||
        mig_mode_(device, &current, &pending) != kNvmlSuccess || current != kEnabled ||
        mig_count_(device, &count) != kNvmlSuccess) {
      return result;
    }
    for (unsigned i = 0; i < count; ++i) {
      NvmlDevice instance = nullptr;
      // The numbers of MIG instances have gaps.
      if (mig_at_(device, i, &instance) != kNvmlSuccess) continue;
      result.push_back({name_of(instance), uuid_of(instance)});
    }
    return result;
  }

  std::vector<Links> links_of(NvmlDevice device) const {
    std::map<PciAddress, Links> result;
    if (link_state_ == nullptr || link_target_ == nullptr) return {};
    for (unsigned link = 0; link < kMostNvLinks; ++link) {
      unsigned state = 0;
      NvmlPciInfo pci{};
      if (link_state_(device, link, &state) != kNvmlSuccess || state != kEnabled ||
          link_target_(device, link, &pci) != kNvmlSuccess) {
        continue;
      }
      int type = kDeviceTypeUnknown;
      if (link_type_ != nullptr) link_type_(device, link, &type);
      if (type == kDeviceTypeNpu) continue;
      const auto address = address_of(pci);
      Links& links = result[address.value_or(kHiddenSwitch)];
      links.target = address.value_or(kHiddenSwitch);
      links.is_switch = links.is_switch || !address || type == kDeviceTypeSwitch;
      ++links.count;
    }
    std::vector<Links> list;
    list.reserve(result.size());
    for (const auto& [target, links] : result) list.push_back(links);
    return list;
  }

  Library library_;
  bool is_open_ = false;
  int (*init_)() = nullptr;
  int (*shutdown_)() = nullptr;
  int (*count_)(unsigned*) = nullptr;
  int (*at_)(unsigned, NvmlDevice*) = nullptr;
  int (*pci_)(NvmlDevice, void*) = nullptr;
  int (*name_)(NvmlDevice, char*, unsigned) = nullptr;
  int (*uuid_)(NvmlDevice, char*, unsigned) = nullptr;
  int (*capability_)(NvmlDevice, int*, int*) = nullptr;
  int (*link_state_)(NvmlDevice, unsigned, unsigned*) = nullptr;
  int (*link_target_)(NvmlDevice, unsigned, void*) = nullptr;
  int (*link_type_)(NvmlDevice, unsigned, int*) = nullptr;
  int (*mig_mode_)(NvmlDevice, unsigned*, unsigned*) = nullptr;
  int (*mig_count_)(NvmlDevice, unsigned*) = nullptr;
  int (*mig_at_)(NvmlDevice, unsigned, NvmlDevice*) = nullptr;
};

// ---- the CUDA driver: https://docs.nvidia.com/cuda/cuda-driver-api ----

constexpr int kCudaSuccess = 0;
constexpr int kMajor = 75;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
constexpr int kMinor = 76;

using CudaUuid = std::array<unsigned char, 16>;  // CUuuid, passed as void*

std::string to_string(const CudaUuid& uuid) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", uuid[i]);
  }
  return text;
}

std::uint32_t index_of(const Machine& machine, const PciAddress& address) {
  const auto at = std::ranges::lower_bound(machine.gpus, address, {},
                                           [](const Gpu& gpu) { return gpu.pci.address; });
  return static_cast<std::uint32_t>(at - machine.gpus.begin());
}

/// The GPU to which a fact refers. The GPU is added if the machine does not have it. Null if there
/// is no room.
Gpu* gpu_of(Machine& machine, const GpuFacts& told) {
  const std::uint32_t index = index_of(machine, told.address);
  const auto at = machine.gpus.begin() + index;
  if (at != machine.gpus.end() && at->pci.address == told.address) return &*at;
  if (machine.gpus.size() >= kMaxGpus) return nullptr;
  for (Link& link : machine.links) {
    for (NodeRef* end : {&link.a, &link.b}) {
      if (end->kind == NodeKind::gpu && end->index >= index) ++end->index;
    }
  }
  Gpu gpu;
  gpu.pci.address = told.address;
  gpu.pci.id = told.id;
  gpu.pci.id.vendor = kVendorNvidia;
  gpu.pci.pci_class = k3dController;
  for (std::uint32_t numa = 0; numa < machine.numa_nodes.size(); ++numa) {
    gpu.pci.numa.push_back(numa);
  }
  return &*machine.gpus.insert(at, std::move(gpu));
}

/// The links that lead to a GPU or NVSwitch of the machine, or to a hidden switch.
std::vector<LinkEnd> ends_of(const Machine& machine, std::span<const GpuFacts> facts) {
  const auto is_switch = [&](const Links& links) {
    return links.is_switch ||
           std::ranges::find(machine.nvswitches, links.target, [](const NvSwitch& one) {
             return one.pci.address;
           }) != machine.nvswitches.end();
  };
  const auto has_gpu = [&](const PciAddress& address) {
    const std::uint32_t index = index_of(machine, address);
    return index < machine.gpus.size() && machine.gpus[index].pci.address == address;
  };
  std::vector<LinkEnd> ends;
  for (const GpuFacts& told : facts) {
    for (const Links& links : told.links) {
      if (!has_gpu(told.address) || !(is_switch(links) || has_gpu(links.target))) continue;
      ends.push_back({index_of(machine, told.address), LinkKind::nvlink, links.target,
                      is_switch(links), links.count});
    }
  }
  return ends;
}

}  // namespace

std::optional<std::vector<GpuFacts>> ask_nvml(const std::string& library) {
  const Nvml nvml(library);
  if (!nvml.is_open()) return std::nullopt;
  return nvml.gpus();
}

std::optional<std::vector<GpuFacts>> ask_cuda(const std::string& name) {
  // Never unloaded, since cuInit() starts threads and state that stay in the process.
  const Library library(name, RTLD_NODELETE);
  int (*init)(unsigned) = nullptr;
  int (*count_of)(int*) = nullptr;
  int (*device_at)(int*, int) = nullptr;
  int (*bus_id_of)(char*, int, int) = nullptr;
  int (*name_of)(char*, int, int) = nullptr;
  int (*uuid_of)(void*, int) = nullptr;
  int (*attribute_of)(int*, int, int) = nullptr;
  const bool has_all =
      library && library.find("cuInit", init) && library.find("cuDeviceGetCount", count_of) &&
      library.find("cuDeviceGet", device_at) && library.find("cuDeviceGetPCIBusId", bus_id_of) &&
      library.find("cuDeviceGetName", name_of) && library.find("cuDeviceGetUuid_v2", uuid_of) &&
      library.find("cuDeviceGetAttribute", attribute_of);
  if (!has_all || init(0) != kCudaSuccess) return std::nullopt;
  std::vector<GpuFacts> result;
  int count = 0;
  if (count_of(&count) != kCudaSuccess) return result;
  for (int i = 0; i < count; ++i) {
    int device = 0;
    if (device_at(&device, i) != kCudaSuccess) continue;
    const auto address = PciAddress::parse(text_of([&](char* text, unsigned size) {
      return bus_id_of(text, static_cast<int>(size), device) == kCudaSuccess;
    }));
    if (!address) continue;
    GpuFacts gpu;
    gpu.address = *address;
    gpu.model = text_of([&](char* text, unsigned size) {
      return name_of(text, static_cast<int>(size), device) == kCudaSuccess;
    });
    // For a partitioned GPU the driver shows one instance, whose name and UUID are not those of the
    // GPU.
    const bool is_instance = gpu.model.find(" MIG ") != std::string::npos;
    CudaUuid uuid{};
    if (is_instance) {
      gpu.model.clear();
    } else if (uuid_of(&uuid, device) == kCudaSuccess) {
      gpu.uuid = to_string(uuid);
    }
    int major = 0, minor = 0;
    if (attribute_of(&major, kMajor, device) == kCudaSuccess &&
        attribute_of(&minor, kMinor, device) == kCudaSuccess) {
      gpu.architecture = architecture_of(major, minor);
    }
    result.push_back(std::move(gpu));
  }
  return result;
}

void add_facts(Machine& machine, std::span<const GpuFacts> facts) {
  for (const GpuFacts& told : facts) {
    Gpu* gpu = gpu_of(machine, told);
    if (gpu == nullptr) continue;
    if (!told.model.empty()) gpu->model = told.model;
    if (!told.uuid.empty()) gpu->uuid = told.uuid;
    if (!told.architecture.empty()) gpu->architecture = told.architecture;
    // If there is only one instance, it counts as the GPU.
    if (told.partitions.size() > 1) gpu->partitions = told.partitions;
  }
  const std::vector<LinkEnd> ends = ends_of(machine, facts);
  if (ends.empty()) return;
  std::erase_if(machine.links, [](const Link& link) { return link.kind == LinkKind::nvlink; });
  add_links(machine, ends);
  std::ranges::sort(machine.links, {},
                    [](const Link& link) { return std::tuple(link.a, link.b, link.kind); });
}

}  // namespace xylem::topology::nvidia
