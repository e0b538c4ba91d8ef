// SPDX-License-Identifier: Apache-2.0
//
// SharedMemory: lets ranks on one host read each other's GPU memory in place.
#pragma once

#include "cuda/device_allocations.h"
#include "cuda/driver.h"
#include "cuda/loaded_kernels.h"
#include "xylem/base/clock.h"
#include "xylem/transport/device_memory.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

namespace xylem::execution::cuda {

/// Describes memory of one device for peers by a DevicePlace, and opens memory of peers for this
/// device. Opened allocations stay open, since peers use the same allocations in later calls. Only
/// one thread at a time may call it.
///
/// Memory of another process is opened and closed by CUDA IPC. Memory of a rank in the same process
/// is used at its own address; memory of another device in this process needs peer access.
///
/// The driver is queried about an allocation once in a call (renew()), and not for each slice.
class SharedMemory final : public transport::DeviceMemory {
 public:
  /// How many allocations of peers are open.
  struct Limits {
    /// This many may stay open although nobody reads them at present. So training steps, which use
    /// the same buffers again, need not open them again.
    std::size_t kept_open = 64;
    /// The most that are open at a time. Messages in further allocations go through the host. More
    /// than `kept_open` are open only if so many are being read, or if streams wait.
    std::size_t most_open = 256;
  };
  /// A callback for errors of the driver while device memory is read. `function` is the name of the
  /// driver function that failed.
  using Note = std::function<void(CUresult result, std::string_view function)>;

  /// Works on the device of `context`, whose number is `device`.
  SharedMemory(const Driver& driver,
               std::shared_ptr<const LoadedKernels> kernels,
               CUcontext context,
               int device,
               Note note,
               Limits limits)
      : driver_(driver),
        limits_(limits),
        kernels_(std::move(kernels)),
        context_(context),
        device_(device),
        note_(std::move(note)),
        own_(driver) {}
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  /// Opened memory stays open, unless close_all() was called.
  ~SharedMemory();
  /// Closes all opened memory of other processes. Preconditions: the context is current, and nobody
  /// reads this memory.
  void close_all(const NoStreamWaits& proof) noexcept;

  /// Creates the stream that copies to the host, with this priority. After each copy, the stream
  /// writes the number of the copy into the pinned word `done`. This word must be 0 before the
  /// first copy; `done_on_device` is its address for the device.
  Status set_up(int priority, std::uint64_t* done, CUdeviceptr done_on_device);

  /// The DevicePlace of an allocation's first byte. Empty if no peer can access the allocation. Any
  /// thread may call this.
  std::optional<transport::DevicePlace> name(const DeviceAllocation& own) const noexcept;

  void renew() noexcept override { own_.renew(); }
  bool share(const transport::ConstRegion& source, transport::DevicePlace& place) noexcept override;
  const std::byte* open(const transport::DevicePlace& place,
                        std::uint64_t bytes,
                        const Memory& reader) noexcept override;
  void close(const transport::DevicePlace& place, const Memory& reader) noexcept override;
  transport::DeviceRead begin_read(std::byte* target,
                                   const transport::ConstRegion& source) noexcept override;
  transport::DeviceRead::State state_of(const transport::DeviceRead& read) noexcept override;
  bool register_host(std::byte* memory, std::uint64_t bytes) noexcept override;
  bool unregister_host(std::byte* memory) noexcept override;

 private:
  /// An allocation of another rank of this process.
  struct Near {
    CUdeviceptr start = 0;
    std::uint64_t bytes = 0;
    bool is_reached = false;  ///< This device can access it.
  };
  /// Identifies an allocation of another process: the number of that process, the number of the
  /// allocation in it, and the IPC handle.
  using Name = std::tuple<std::uint64_t, std::uint64_t, std::array<std::byte, 64>>;
  /// An allocation of another process that has been opened for this device.
  struct Far {
    CUdeviceptr base = 0;
    std::uint64_t bytes = 0;
    std::uint64_t theirs = 0;  ///< Its first address in the process that owns it.
    std::uint32_t users = 0;
    std::uint64_t used_at = 0;
  };

  void find_handle(CUdeviceptr start, transport::DevicePlace& place) const noexcept;
  const std::byte* open_near(const transport::DevicePlace& place, std::uint64_t bytes) noexcept;
  bool reaches(int device) noexcept;
  Far* open_far(const transport::DevicePlace& place) noexcept;
  bool make_room() noexcept;
  void note_replaced(const Name& name, const Far& opened) noexcept;

  /// Whether kernels can write this memory of the host.
  bool is_registered(const std::byte* memory, std::uint64_t bytes) const noexcept;

  const Driver& driver_;
  const Limits limits_;
  const std::shared_ptr<const LoadedKernels> kernels_;
  const CUcontext context_;
  const int device_;
  const Note note_;

  // Copies to the host.
  /// Memory of the host that kernels can write: its address, and its size in bytes.
  std::map<const std::byte*, std::uint64_t> registered_;
  CUstream stream_ = nullptr;
  std::uint64_t reads_ = 0;  ///< The number of the last copy.
  std::uint64_t* done_ = nullptr;
  CUdeviceptr done_on_device_ = 0;
  Clock::time_point asked_at_{};  ///< When the driver was last queried about the stream.

  /// Allocations from which ranks of this job send messages. The value is the DevicePlace of the
  /// first byte, or empty if no peer can access the allocation.
  DeviceAllocations<std::optional<transport::DevicePlace>> own_;
  std::map<std::uint64_t, Near> near_;  ///< By the numbers of the allocations.
  std::map<Name, Far> far_;
  std::set<Name> refused_;       ///< Allocations that could not be opened.
  std::map<int, bool> reaches_;  ///< Whether there is peer access to a device.
  std::uint64_t uses_ = 0;
};

}  // namespace xylem::execution::cuda
