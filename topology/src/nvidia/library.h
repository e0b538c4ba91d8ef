// SPDX-License-Identifier: Apache-2.0
//
// Opens a library of NVIDIA's driver at run time, and converts the texts and versions that it
// reports.
#pragma once

#include "gpu_links.h"
#include "text.h"

#include <fmt/format.h>

#include <dlfcn.h>

#include <array>
#include <memory>
#include <string>

namespace xylem::topology::nvidia {

class Library {
 public:
  explicit Library(const std::string& name, int flags = 0)
      : handle_(name.empty() ? nullptr : dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | flags)) {}

  explicit operator bool() const { return handle_ != nullptr; }

  /// Looks up a function. Returns false if the library is too old to have it.
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

/// The text that `call` writes, given a buffer and its size; empty if `call` returns false.
template <typename Call>
std::string text_of(Call&& call) {
  std::array<char, 128> text{};
  if (!call(text.data(), static_cast<unsigned>(text.size()))) return {};
  text.back() = '\0';
  return clean_text(text.data());
}

inline std::string architecture_of(int major, int minor) {
  constexpr int kMost = 999;
  if (major <= 0 || major > kMost || minor < 0 || minor > 9) return {};
  return fmt::format("{}{}", kCudaPrefix, major * 10 + minor);
}

/// "13.0" for 13000, as both libraries number versions of CUDA; empty if `version` is not positive.
inline std::string cuda_version_text(int version) {
  return version <= 0 ? std::string() : fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace xylem::topology::nvidia
