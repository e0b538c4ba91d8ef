// SPDX-License-Identifier: Apache-2.0
#include "fakes/cuda_driver/shared_event.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>

namespace xylem::fake_cuda {

/// A new memfd contains zeros, so both numbers begin at 0.
struct SharedEvent::Page {
  std::atomic<std::uint64_t> recorded;
  std::atomic<std::uint64_t> completed;
};

std::shared_ptr<SharedEvent> SharedEvent::map(int file) {
  void* page = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (page == MAP_FAILED) {
    close(file);
    return nullptr;
  }
  return std::shared_ptr<SharedEvent>(new SharedEvent(file, static_cast<Page*>(page)));
}

std::shared_ptr<SharedEvent> SharedEvent::make() {
  const int file = memfd_create("fake_cuda_event", MFD_CLOEXEC);
  if (file < 0) return nullptr;
  if (ftruncate(file, sizeof(Page)) != 0) {
    close(file);
    return nullptr;
  }
  return map(file);
}

std::shared_ptr<SharedEvent> SharedEvent::open(int file) { return map(file); }

SharedEvent::~SharedEvent() {
  munmap(page_, sizeof(Page));
  close(file_);
}

std::uint64_t SharedEvent::record() {
  return page_->recorded.fetch_add(1, std::memory_order_acq_rel) + 1;
}

void SharedEvent::complete(std::uint64_t record) {
  std::uint64_t now = page_->completed.load(std::memory_order_relaxed);
  while (now < record &&
         !page_->completed.compare_exchange_weak(now, record, std::memory_order_acq_rel)) {
  }
}

std::uint64_t SharedEvent::newest() const {
  return page_->recorded.load(std::memory_order_acquire);
}

bool SharedEvent::is_done(std::uint64_t record) const {
  return page_->completed.load(std::memory_order_acquire) >= record;
}

}  // namespace xylem::fake_cuda
