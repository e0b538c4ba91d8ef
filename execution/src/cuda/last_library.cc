// SPDX-License-Identifier: Apache-2.0
#include "cuda/last_library.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstddef>
#include <new>
#include <string_view>

namespace xylem::execution::cuda {

namespace {

link_map* entry_of(void* handle) {
  link_map* entry = nullptr;
  return ::dlinfo(handle, RTLD_DI_LINKMAP, static_cast<void*>(&entry)) == 0 ? entry : nullptr;
}

struct Search {
  const link_map* first = nullptr;
  std::array<char, PATH_MAX> name{};
};

/// A callback of dl_iterate_phdr(), which calls it under the lock that protects the loader's list.
/// Copies the name of the last library. Returns 1, so that there is only one call.
int note_last(dl_phdr_info* /*info*/, std::size_t /*size*/, void* search) {
  auto& found = *static_cast<Search*>(search);
  const link_map* last = found.first;
  while (last->l_next != nullptr) last = last->l_next;
  const std::string_view name = last->l_name;
  if (name.size() < found.name.size()) std::ranges::copy(name, found.name.begin());
  return 1;
}

}  // namespace

LastLibrary::~LastLibrary() {
  for (void* const handle : held_) ::dlclose(handle);
}

link_map* LastLibrary::hold() {
  void* const program = ::dlopen(nullptr, RTLD_LAZY);
  if (program == nullptr) return nullptr;
  Search search;
  search.first = entry_of(program);
  if (search.first != nullptr) ::dl_iterate_phdr(note_last, &search);
  ::dlclose(program);
  // The loader's lock is not held here, so another thread may already have closed the library, or
  // loaded a further library.
  void* const last =
      search.first == nullptr ? nullptr : ::dlopen(search.name.data(), RTLD_LAZY | RTLD_NOLOAD);
  if (last == nullptr) return nullptr;
  if (std::ranges::find(held_, last) != held_.end()) {
    ::dlclose(last);  // One reference is enough.
    return entry_of(last);
  }
  try {
    held_.push_back(last);
  } catch (const std::bad_alloc&) {
    ::dlclose(last);
    return nullptr;
  }
  return entry_of(last);
}

}  // namespace xylem::execution::cuda
