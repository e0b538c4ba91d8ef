// SPDX-License-Identifier: Apache-2.0
#include "user_store.h"

#include "sized.h"

#include <fmt/format.h>

#include <chrono>

namespace xylem::c {
namespace {

class UserStore final : public Store {
 public:
  explicit UserStore(const xylem_store& store) : store_(store), value_(XYLEM_STORE_VALUE_MAX) {}

  Status set(std::string_view key, std::span<const std::byte> value) override {
    const std::string name(key);
    return outcome("set", name,
                   store_.set(store_.context, name.c_str(), value.data(), value.size()));
  }

  Result<std::vector<std::byte>> get(std::string_view key, Deadline deadline) override {
    const std::string name(key);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.left());
    std::size_t size = 0;
    XYLEM_TRY(outcome("get", name,
                      store_.get(store_.context, name.c_str(),
                                 static_cast<std::uint64_t>(left.count()), value_.data(), &size)));
    if (size > value_.size()) {
      return failure(Code::invalid_argument,
                     fmt::format("the store's get(\"{}\") gave {} bytes; a value has at most {}",
                                 name, size, value_.size()));
    }
    return std::vector<std::byte>(value_.begin(),
                                  value_.begin() + static_cast<std::ptrdiff_t>(size));
  }

 private:
  static Status outcome(std::string_view function, const std::string& key, xylem_status status) {
    if (status == XYLEM_OK) return {};
    return failure(is_error_code(status) ? static_cast<Code>(status) : Code::internal,
                   fmt::format("the store's {}(\"{}\") returned {} ({})", function, key, status,
                               xylem_status_name(status)));
  }

  const xylem_store store_;
  std::vector<std::byte> value_;  ///< The buffer into which the caller's get() writes.
};

}  // namespace

Result<std::shared_ptr<Store>> make_user_store(const xylem_store& given) {
  XYLEM_TRY(const xylem_store store, read_sized("xylem_store", &given));
  if (store.set == nullptr || store.get == nullptr) {
    return failure(Code::invalid_argument,
                   "xylem_store: `set` or `get` is null; a store needs both");
  }
  return std::shared_ptr<Store>(std::make_shared<UserStore>(store));
}

}  // namespace xylem::c
