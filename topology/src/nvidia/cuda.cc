// SPDX-License-Identifier: Apache-2.0
//
// The CUDA driver: https://docs.nvidia.com/cuda/cuda-driver-api, whose names are used here.
#include "nvidia/facts.h"
#include "nvidia/library.h"

#include <algorithm>
#include <array>

namespace xylem::topology::nvidia {
namespace {

constexpr int kCudaSuccess = 0;
// CU_DEVICE_ATTRIBUTE_…
constexpr int kMemoryClockKilohertz = 36;
constexpr int kMemoryBusBits = 37;
constexpr int kMajor = 75;
constexpr int kMinor = 76;
constexpr int kRdma = 116;    // GPU_DIRECT_RDMA_SUPPORTED
constexpr int kDmaBuf = 124;  // DMA_BUF_SUPPORTED
/// IPC_EVENT_SUPPORTED. The manual of cuIpcGetMemHandle says that it also applies to memory.
constexpr int kIpc = 125;

using CudaUuid = std::array<unsigned char, 16>;  // CUuuid, passed as void*

std::string to_string(const CudaUuid& uuid) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", uuid[i]);
  }
  return text;
}

class Cuda {
 public:
  // Never unloaded, since cuInit() starts threads and creates state that stay in the process.
  explicit Cuda(const std::string& name) : library_(name, RTLD_NODELETE) {
    if (!library_) {
      trouble_ = fmt::format("{} cannot be opened", name);
    } else if (!find_functions()) {
      trouble_ = fmt::format("{} lacks functions of CUDA", name);
    } else if (const int error = init_(0); error != kCudaSuccess) {
      trouble_ = fmt::format("{} does not start (CUDA error {})", name, error);
    }
  }

  const std::string& trouble() const { return trouble_; }

  Facts facts() const {
    Facts facts;
    std::vector<int> devices;
    int count = 0;
    if (count_(&count) != kCudaSuccess) count = 0;
    for (int i = 0; i < std::min(count, static_cast<int>(kMaxGpus)); ++i) {
      int device = 0;
      if (at_(&device, i) != kCudaSuccess) continue;
      auto gpu = gpu_of(device);
      if (!gpu) continue;
      facts.gpus.push_back(*std::move(gpu));
      devices.push_back(device);
    }
    if (devices.size() <= kMostPairedGpus) facts.pairs = pairs_of(facts.gpus, devices);
    int version = 0;
    if (version_ != nullptr && version_(&version) == kCudaSuccess) {
      facts.cuda_version = cuda_version_text(version);
    }
    return facts;
  }

 private:
  bool find_functions() {
    library_.find("cuDriverGetVersion", version_);
    library_.find("cuDeviceTotalMem_v2", memory_);
    library_.find("cuDeviceCanAccessPeer", can_access_);
    return library_.find("cuInit", init_) && library_.find("cuDeviceGetCount", count_) &&
           library_.find("cuDeviceGet", at_) && library_.find("cuDeviceGetPCIBusId", bus_id_) &&
           library_.find("cuDeviceGetName", name_) && library_.find("cuDeviceGetUuid_v2", uuid_) &&
           library_.find("cuDeviceGetAttribute", attribute_);
  }

  std::optional<int> attribute(int number, int device) const {
    int value = 0;
    if (attribute_(&value, number, device) != kCudaSuccess) return std::nullopt;
    return value;
  }

  std::optional<GpuFacts> gpu_of(int device) const {
    const auto address = PciAddress::parse(text_of([&](char* text, unsigned size) {
      return bus_id_(text, static_cast<int>(size), device) == kCudaSuccess;
    }));
    if (!address) return std::nullopt;
    GpuFacts gpu;
    gpu.address = *address;
    gpu.model = text_of([&](char* text, unsigned size) {
      return name_(text, static_cast<int>(size), device) == kCudaSuccess;
    });
    // For a partitioned GPU the driver shows one instance, whose name, UUID and memory are not
    // those of the GPU.
    const bool is_instance = gpu.model.find(" MIG ") != std::string::npos;
    CudaUuid uuid{};
    std::size_t memory = 0;
    if (is_instance) {
      gpu.model.clear();
    } else {
      if (uuid_(&uuid, device) == kCudaSuccess) gpu.uuid = to_string(uuid);
      if (memory_ != nullptr && memory_(&memory, device) == kCudaSuccess) gpu.memory = {memory};
      constexpr double kKilohertz = 1e3;
      gpu.memory_rate =
          memory_rate_of(attribute(kMemoryClockKilohertz, device).value_or(0) / kKilohertz,
                         attribute(kMemoryBusBits, device).value_or(0));
    }
    gpu.architecture = architecture_of(attribute(kMajor, device).value_or(0),
                                       attribute(kMinor, device).value_or(0));
    if (const auto ipc = attribute(kIpc, device)) gpu.ipc = *ipc != 0;
    const auto rdma = attribute(kRdma, device), dma_buf = attribute(kDmaBuf, device);
    if (rdma || dma_buf) gpu.rdma = rdma.value_or(0) != 0 || dma_buf.value_or(0) != 0;
    return gpu;
  }

  std::vector<PairFacts> pairs_of(const std::vector<GpuFacts>& gpus,
                                  const std::vector<int>& devices) const {
    std::vector<PairFacts> pairs;
    if (can_access_ == nullptr) return pairs;
    for (std::size_t a = 0; a < gpus.size(); ++a) {
      for (std::size_t b = a + 1; b < gpus.size(); ++b) {
        int there = 0, back = 0;
        if (can_access_(&there, devices[a], devices[b]) != kCudaSuccess ||
            can_access_(&back, devices[b], devices[a]) != kCudaSuccess) {
          continue;
        }
        pairs.push_back({gpus[a].address, gpus[b].address,
                         there != 0 && back != 0 ? PeerAccess::yes : PeerAccess::no});
      }
    }
    return pairs;
  }

  Library library_;
  std::string trouble_;
  int (*init_)(unsigned) = nullptr;
  int (*version_)(int*) = nullptr;
  int (*count_)(int*) = nullptr;
  int (*at_)(int*, int) = nullptr;
  int (*bus_id_)(char*, int, int) = nullptr;
  int (*name_)(char*, int, int) = nullptr;
  int (*uuid_)(void*, int) = nullptr;
  int (*memory_)(std::size_t*, int) = nullptr;
  int (*attribute_)(int*, int, int) = nullptr;
  int (*can_access_)(int*, int, int) = nullptr;
};

}  // namespace

Result<Facts> ask_cuda(const std::string& library) {
  if (library.empty()) return failure(Code::unsupported, "the CUDA driver is not asked");
  const Cuda cuda(library);
  if (!cuda.trouble().empty()) return failure(Code::unsupported, cuda.trouble());
  return cuda.facts();
}

}  // namespace xylem::topology::nvidia
