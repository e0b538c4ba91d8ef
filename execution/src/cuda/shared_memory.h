// SPDX-License-Identifier: Apache-2.0
//
// Memory of GPUs that processes on one host read in place: that of one device for peers, and that
// of peers for this device.
#pragma once

#include "cuda/driver.h"
#include "cuda/gates.h"
#include "xylem/transport/device_memory.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

namespace xylem::execution::cuda {

/// Names memory of one device for peers, and opens memory of peers for this device. Opened
/// allocations are kept, since peers use theirs again. All threads may call it.
///
/// To the driver, memory of a peer process is opened and closed by CUDA IPC. In one process
/// addresses are used as they are; memory of another device needs peer access.
class SharedMemory final : public transport::DeviceMemory {
 public:
  /// Is told which function of the driver failed while device memory was read.
  using Note = std::function<void(CUresult result, std::string_view function)>;

  /// Works on the device of `context`, whose number is `device`. Nothing is closed while streams
  /// wait for calls (`gates`), since the driver may then wait for these streams.
  SharedMemory(const Driver& driver, CUcontext context, int device, const Gates& gates, Note note)
      : driver_(driver),
        context_(context),
        device_(device),
        gates_(gates),
        note_(std::move(note)) {}
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  /// Makes the stream that read() uses, with this priority.
  Status set_up(int priority);

  bool share(const transport::ConstRegion& source, transport::DevicePlace& place) noexcept override;
  const std::byte* open(const transport::DevicePlace& place,
                        std::uint64_t bytes,
                        const Memory& reader) noexcept override;
  void close(const transport::DevicePlace& place, const Memory& reader) noexcept override;
  bool read(std::byte* target, const transport::ConstRegion& source) noexcept override;

 private:
  /// An allocation of another process: its handle, and its number there.
  using Name = std::pair<std::array<std::byte, 64>, std::uint64_t>;
  /// An allocation of another process, as this device reaches it.
  struct Opened {
    CUdeviceptr base = 0;
    std::uint64_t bytes = 0;
    std::uint32_t users = 0;
    std::uint64_t used_at = 0;
  };
  struct Facts;

  bool find_facts(CUdeviceptr address, Facts& facts) const noexcept;
  const std::byte* open_here(const transport::DevicePlace& place, std::uint64_t bytes) noexcept;
  bool reaches(int device) noexcept;
  Opened* open_there(const transport::DevicePlace& place) noexcept;
  void close_unused() noexcept;

  const Driver& driver_;
  const CUcontext context_;
  const int device_;
  const Gates& gates_;
  const Note note_;
  std::mutex reading_;         ///< Protects `stream_`.
  CUstream stream_ = nullptr;  ///< On which read() copies.
  std::mutex mutex_;
  std::map<std::uint64_t, CUipcMemHandle> handles_;  // «mutex_» Of allocations of this process.
  std::map<Name, Opened> opened_;                    // «mutex_»
  std::set<Name> refused_;                           // «mutex_» Those that cannot be opened.
  std::map<int, bool> reaches_;                      // «mutex_» Whether there is peer access.
  std::uint64_t uses_ = 0;                           // «mutex_»
};

}  // namespace xylem::execution::cuda
