// SPDX-License-Identifier: Apache-2.0
#include "process_guard.h"

#include <sys/mman.h>

#include <cstddef>

namespace xylem::runtime {
namespace {

constexpr std::size_t kPage = 4096;

/// A page that the kernel clears in a forked child; null if it cannot be mapped.
volatile char* fork_page() noexcept {
  void* page = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return nullptr;
  madvise(page, kPage, MADV_WIPEONFORK);
  return static_cast<volatile char*>(page);
}

}  // namespace

ForkPage::ForkPage() noexcept : page_(fork_page()) { claim(); }

ForkPage::~ForkPage() {
  if (page_ != nullptr) munmap(const_cast<char*>(page_), kPage);
}

void ForkPage::claim() noexcept {
  if (page_ != nullptr) *page_ = 1;
}

Status ForkPage::error() {
  return failure(Code::invalid_argument,
                 "this process was forked from one that uses Xylem; it may use nothing of it "
                 "(exec a program of its own, or fork while the parent has no runtime)");
}

Status ProcessGuard::check() const noexcept {
  if (is_forked()) return ForkPage::error();
  if (is_closed()) return failure(Code::invalid_argument, "the runtime has shut down");
  return {};
}

}  // namespace xylem::runtime
