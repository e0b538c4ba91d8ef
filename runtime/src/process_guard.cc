// SPDX-License-Identifier: Apache-2.0
#include "process_guard.h"

#include <sys/mman.h>

#include <cstddef>

namespace xylem::runtime {
namespace {

constexpr std::size_t kPage = 4096;

/// A page that reads 1 in this process and 0 in a forked child; null if the system gives no page.
const volatile char* fork_page() noexcept {
  void* page = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return nullptr;
  madvise(page, kPage, MADV_WIPEONFORK);
  *static_cast<char*>(page) = 1;
  return static_cast<const volatile char*>(page);
}

}  // namespace

ProcessGuard::ProcessGuard() noexcept : page_(fork_page()) {}

ProcessGuard::~ProcessGuard() {
  if (page_ != nullptr) munmap(const_cast<char*>(page_), kPage);
}

Status ProcessGuard::check() const noexcept {
  if (is_forked()) {
    return failure(Code::invalid_argument,
                   "this process was forked from one that uses Xylem; it may use nothing of it "
                   "(exec a program of its own)");
  }
  if (is_closed()) return failure(Code::invalid_argument, "the runtime has shut down");
  return {};
}

}  // namespace xylem::runtime
