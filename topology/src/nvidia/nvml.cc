// SPDX-License-Identifier: Apache-2.0
//
// NVIDIA's management library: https://docs.nvidia.com/deploy/nvml-api, whose names are used here.
//
// nvmlDeviceGetNvLinkVersion is not called, since it reports 5.0 for the links of an H100, whose
// rate is that of version 4. The rate of a link follows from the compute capability (gpu_links.h).
#include "nvidia/facts.h"
#include "nvidia/library.h"

#include <algorithm>
#include <array>
#include <map>

namespace xylem::topology::nvidia {
namespace {

constexpr int kNvmlSuccess = 0;
constexpr unsigned kMostNvLinks = 18;    // NVML_NVLINK_MAX_LINKS
constexpr unsigned kMostInstances = 64;  // More than any GPU has: a GPU has up to 7.
constexpr unsigned kEnabled = 1;         // NVML_FEATURE_ENABLED, NVML_DEVICE_MIG_ENABLE
// NVML_NVLINK_DEVICE_TYPE_IBMNPU, _SWITCH, _UNKNOWN
constexpr int kDeviceTypeNpu = 1;
constexpr int kDeviceTypeSwitch = 2;
constexpr int kDeviceTypeUnknown = 255;
constexpr int kMemoryClock = 2;            // NVML_CLOCK_MEM
constexpr std::array kCapabilities{0, 1};  // NVML_P2P_CAPS_INDEX_READ, _WRITE
constexpr std::array kPcieSpeeds{2.5, 5.0, 8.0, 16.0, 32.0, 64.0};  // Of PCIe generations, in GT/s.
constexpr unsigned kMostPcieLanes = 32;

using NvmlDevice = void*;  // nvmlDevice_t

/// Has the layout of the nvmlPciInfo_t that the functions ending in _v2 and _v3 use. It is passed
/// to them as void*.
struct NvmlPciInfo {
  std::array<char, 16> bus_id_legacy;
  unsigned domain, bus, device;
  unsigned device_id, subsystem_id;
  std::array<char, 32> bus_id;
};

/// Has the layout of nvmlMemory_t.
struct NvmlMemory {
  unsigned long long total, free, used;
};

/// Converts an nvmlGpuP2PStatus_t.
PeerAccess access_of(int status) {
  switch (status) {
    case 0: return PeerAccess::yes;
    case 1: return PeerAccess::no_by_chipset;
    case 2: return PeerAccess::no_by_gpu;
    case 3: return PeerAccess::no_by_topology;
    case 4: return PeerAccess::disabled;
    case 5: return PeerAccess::no;
    default: return PeerAccess::unknown;
  }
}

class Nvml {
 public:
  explicit Nvml(const std::string& name) : library_(name) {
    if (!library_) {
      trouble_ = fmt::format("{} cannot be opened", name);
    } else if (!find_functions()) {
      trouble_ = fmt::format("{} lacks functions of NVML", name);
    } else if (const int error = init_(); error != kNvmlSuccess) {
      trouble_ = fmt::format("{} does not start (NVML error {})", name, error);
    }
  }
  ~Nvml() {
    if (is_open()) shutdown_();
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  bool is_open() const { return trouble_.empty(); }
  const std::string& trouble() const { return trouble_; }

  Facts facts() const {
    Facts facts;
    std::vector<NvmlDevice> devices;
    unsigned count = 0;
    if (count_(&count) != kNvmlSuccess) count = 0;
    for (unsigned i = 0; i < std::min<std::size_t>(count, kMaxGpus); ++i) {
      NvmlDevice device = nullptr;
      // This fails if the GPU has fallen off the bus, or if access is denied.
      if (at_(i, &device) != kNvmlSuccess) continue;
      auto gpu = gpu_of(device);
      if (!gpu) continue;
      facts.gpus.push_back(*std::move(gpu));
      devices.push_back(device);
    }
    if (devices.size() <= kMostPairedGpus) facts.pairs = pairs_of(facts.gpus, devices);
    facts.driver_version = text_of([&](char* text, unsigned size) {
      return driver_version_ != nullptr && driver_version_(text, size) == kNvmlSuccess;
    });
    int cuda = 0;
    if (cuda_version_ != nullptr && cuda_version_(&cuda) == kNvmlSuccess) {
      facts.cuda_version = cuda_version_text(cuda);
    }
    return facts;
  }

 private:
  bool find_functions() {
    // Later versions of NVML added these functions. If a function is missing, the facts that it
    // reports stay unknown.
    library_.find("nvmlDeviceGetCudaComputeCapability", capability_);
    library_.find("nvmlDeviceGetNvLinkState", link_state_);
    library_.find("nvmlDeviceGetNvLinkRemotePciInfo_v2", link_target_);
    library_.find("nvmlDeviceGetNvLinkRemoteDeviceType", link_type_);
    library_.find("nvmlDeviceGetMigMode", mig_mode_);
    library_.find("nvmlDeviceGetMaxMigDeviceCount", mig_count_);
    library_.find("nvmlDeviceGetMigDeviceHandleByIndex", mig_at_);
    library_.find("nvmlDeviceGetMemoryInfo", memory_);
    library_.find("nvmlDeviceGetMemoryBusWidth", bus_width_);
    library_.find("nvmlDeviceGetMaxClockInfo", most_clock_);
    library_.find("nvmlDeviceGetCurrPcieLinkWidth", lanes_);
    library_.find("nvmlDeviceGetMaxPcieLinkWidth", most_lanes_);
    library_.find("nvmlDeviceGetMaxPcieLinkGeneration", generation_);
    library_.find("nvmlDeviceGetP2PStatus", peer_status_);
    library_.find("nvmlSystemGetDriverVersion", driver_version_);
    library_.find("nvmlSystemGetCudaDriverVersion_v2", cuda_version_);
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
    add_memory(device, gpu);
    add_pcie(device, gpu);
    add_links(device, gpu);
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
  /// The number that `function` reports; 0 if it fails or is missing.
  static unsigned number_of(int (*function)(NvmlDevice, unsigned*), NvmlDevice device) {
    unsigned value = 0;
    return function != nullptr && function(device, &value) == kNvmlSuccess ? value : 0;
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
    for (unsigned i = 0; i < std::min(count, kMostInstances); ++i) {
      NvmlDevice instance = nullptr;
      // The numbers of MIG instances have gaps.
      if (mig_at_(device, i, &instance) != kNvmlSuccess) continue;
      result.push_back({name_of(instance), uuid_of(instance)});
    }
    return result;
  }

  void add_memory(NvmlDevice device, GpuFacts& gpu) const {
    NvmlMemory memory{};
    if (memory_ != nullptr && memory_(device, &memory) == kNvmlSuccess) gpu.memory = {memory.total};
    unsigned megahertz = 0;
    if (most_clock_ != nullptr && most_clock_(device, kMemoryClock, &megahertz) == kNvmlSuccess) {
      gpu.memory_rate = memory_rate_of(megahertz, number_of(bus_width_, device));
    }
  }

  void add_pcie(NvmlDevice device, GpuFacts& gpu) const {
    const unsigned lanes = number_of(lanes_, device), most = number_of(most_lanes_, device);
    const unsigned generation = number_of(generation_, device);
    if (most > 0 && most <= kMostPcieLanes) gpu.pcie_lanes = most;
    if (lanes == 0 || lanes > kMostPcieLanes || generation == 0 || generation > kPcieSpeeds.size())
      return;
    gpu.pcie = pcie_rate(kPcieSpeeds[generation - 1], lanes);
  }

  void add_links(NvmlDevice device, GpuFacts& gpu) const {
    std::map<PciAddress, Links> result;
    if (link_state_ == nullptr || link_target_ == nullptr) return;
    for (unsigned link = 0; link < kMostNvLinks; ++link) {
      unsigned state = 0;
      NvmlPciInfo pci{};
      if (link_state_(device, link, &state) != kNvmlSuccess) continue;  // The GPU has fewer links.
      if (state != kEnabled) {
        gpu.nvlinks_down = gpu.nvlinks_down.value_or(0) + 1;
        continue;
      }
      if (link_target_(device, link, &pci) != kNvmlSuccess) continue;
      int type = kDeviceTypeUnknown;
      if (link_type_ != nullptr) link_type_(device, link, &type);
      if (type == kDeviceTypeNpu) continue;
      const auto address = address_of(pci);
      Links& links = result[address.value_or(kHiddenSwitch)];
      links.target = address.value_or(kHiddenSwitch);
      links.is_switch = links.is_switch || !address || type == kDeviceTypeSwitch;
      ++links.count;
    }
    for (const auto& [target, links] : result) gpu.links.push_back(links);
  }

  std::vector<PairFacts> pairs_of(const std::vector<GpuFacts>& gpus,
                                  const std::vector<NvmlDevice>& devices) const {
    std::vector<PairFacts> pairs;
    if (peer_status_ == nullptr) return pairs;
    for (std::size_t a = 0; a < gpus.size(); ++a) {
      for (std::size_t b = a + 1; b < gpus.size(); ++b) {
        PeerAccess access = PeerAccess::yes;
        for (const int capability : kCapabilities) {
          int status = 0;
          if (peer_status_(devices[a], devices[b], capability, &status) != kNvmlSuccess) {
            access = PeerAccess::unknown;
          } else if (access == PeerAccess::yes) {
            access = access_of(status);
          }
        }
        if (access != PeerAccess::unknown)
          pairs.push_back({gpus[a].address, gpus[b].address, access});
      }
    }
    return pairs;
  }

  Library library_;
  std::string trouble_;
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
  int (*memory_)(NvmlDevice, void*) = nullptr;
  int (*bus_width_)(NvmlDevice, unsigned*) = nullptr;
  int (*most_clock_)(NvmlDevice, int, unsigned*) = nullptr;
  int (*lanes_)(NvmlDevice, unsigned*) = nullptr;
  int (*most_lanes_)(NvmlDevice, unsigned*) = nullptr;
  int (*generation_)(NvmlDevice, unsigned*) = nullptr;
  int (*peer_status_)(NvmlDevice, NvmlDevice, int, int*) = nullptr;
  int (*driver_version_)(char*, unsigned) = nullptr;
  int (*cuda_version_)(int*) = nullptr;
};

}  // namespace

Result<Facts> ask_nvml(const std::string& library) {
  if (library.empty()) return failure(Code::unsupported, "NVML is not asked");
  const Nvml nvml(library);
  if (!nvml.is_open()) return failure(Code::unsupported, nvml.trouble());
  return nvml.facts();
}

}  // namespace xylem::topology::nvidia
