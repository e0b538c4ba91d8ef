// SPDX-License-Identifier: Apache-2.0
#include "fakes/cuda_driver/physical.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <vector>

namespace xylem::fake_cuda {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::uint64_t kMagic = 0x79730a6d656d7978;

/// The contents of the last page of the file.
struct Description {
  std::uint64_t magic = kMagic;
  std::uint64_t bytes = 0;
  CUmemAllocationProp properties = {};
};
static_assert(sizeof(Description) <= kPage);

std::uint64_t new_block_id() {
  // These ids must differ from the ids of buffers, which identify other memory.
  static std::atomic<std::uint64_t> made{std::uint64_t{1} << 32};
  return ++made;
}

std::shared_ptr<Physical> hold(int file, const Description& description) {
  auto physical = std::make_shared<Physical>();
  physical->file = file;
  physical->bytes = description.bytes;
  physical->properties = description.properties;
  physical->block_id = new_block_id();
  return physical;
}

}  // namespace

Physical::~Physical() {
  if (file >= 0) close(file);
}

std::shared_ptr<Physical> make_physical(std::size_t bytes, const CUmemAllocationProp& properties) {
  Description description;
  description.bytes = bytes;
  description.properties = properties;
  auto physical = hold(memfd_create("fake_cuda_physical", MFD_CLOEXEC), description);
  const auto end = static_cast<off_t>(bytes);
  const std::vector<unsigned char> pattern(std::min(bytes, kMostPattern), kPattern);
  const bool is_made =
      physical->file >= 0 && ftruncate(physical->file, end + off_t{kPage}) == 0 &&
      pwrite(physical->file, &description, sizeof description, end) == sizeof description &&
      pwrite(physical->file, pattern.data(), pattern.size(), 0) > 0;
  return is_made ? physical : nullptr;
}

std::shared_ptr<Physical> import_physical(int file) {
  struct stat status = {};
  Description description;
  if (fstat(file, &status) != 0 || status.st_size < off_t{2 * kPage}) return nullptr;
  const off_t end = status.st_size - off_t{kPage};
  if (pread(file, &description, sizeof description, end) != sizeof description ||
      description.magic != kMagic || static_cast<off_t>(description.bytes) != end) {
    return nullptr;
  }
  const int own = fcntl(file, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return nullptr;
  auto physical = hold(own, description);
  physical->is_imported = true;
  return physical;
}

}  // namespace xylem::fake_cuda
