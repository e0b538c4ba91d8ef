// SPDX-License-Identifier: Apache-2.0
#include "store.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

namespace xylem::pytorch {
namespace {

constexpr std::size_t kSecretBytes = 32;

class TorchStore final : public Store {
 public:
  explicit TorchStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

  Status set(std::string_view key, std::span<const std::byte> value) override {
    return guarded("set", key, [&] {
      const auto* const bytes = reinterpret_cast<const std::uint8_t*>(value.data());
      store_->set(std::string(key), std::vector<std::uint8_t>(bytes, bytes + value.size()));
      return Status();
    });
  }

  Result<std::vector<std::byte>> get(std::string_view key, Deadline deadline) override {
    std::vector<std::byte> value;
    Status got = guarded("get", key, [&] {
      const std::string name(key);
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.left());
      // Waiting throws when the limit passes, as it does when the server has gone.
      if (!store_->check({name})) {
        store_->wait({name}, std::max(left, std::chrono::milliseconds(1)));
      }
      const std::vector<std::uint8_t> bytes = store_->get(name);
      const auto* const begin = reinterpret_cast<const std::byte*>(bytes.data());
      value.assign(begin, begin + bytes.size());
      return Status();
    });
    if (got) return value;
    if (!deadline.passed()) return got;
    return failure(Code::timed_out, "the key " + std::string(key) +
                                        " was not set in torch's store in time: the rank that sets "
                                        "it has not called init_process_group or new_group");
  }

 private:
  template <typename Call>
  static Status guarded(std::string_view function, std::string_view key, const Call& call) {
    try {
      return call();
    } catch (const std::exception& error) {
      return failure(Code::internal, "torch's store failed in " + std::string(function) + "(\"" +
                                         std::string(key) + "\"): " + error.what());
    }
  }

  const c10::intrusive_ptr<c10d::Store> store_;
};

std::string random_text() {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::random_device device;
  std::string text;
  for (std::size_t i = 0; i < kSecretBytes; ++i) {
    const unsigned byte = device();
    text += kDigits[byte & 15];
    text += kDigits[byte >> 4 & 15];
  }
  return text;
}

}  // namespace

std::shared_ptr<Store> adapt(c10::intrusive_ptr<c10d::Store> store) {
  return std::make_shared<TorchStore>(std::move(store));
}

Result<Invitation> invite(Store& store, const std::string& group, bool is_host, Deadline deadline) {
  constexpr std::string_view kKey = "xylem/secret";
  if (is_host) {
    const std::string secret = random_text();
    if (Status set = store.set(kKey, std::as_bytes(std::span(secret))); !set) return set;
    return Invitation{group, secret};
  }
  auto got = store.get(kKey, deadline);
  if (!got) return got.status();
  return Invitation{group, std::string(reinterpret_cast<const char*>(got->data()), got->size())};
}

}  // namespace xylem::pytorch
