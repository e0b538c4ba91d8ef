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
#include <thread>
#include <utility>
#include <vector>

namespace xylem::pytorch {
namespace {

constexpr std::size_t kRandomBytes = 16;

/// The pause between two checks of a store. It doubles up to a limit.
class Pause {
 public:
  void take(Deadline deadline) {
    std::this_thread::sleep_for(std::min<Clock::duration>(length_, deadline.left()));
    length_ = std::min(2 * length_, kLongest);
  }

 private:
  static constexpr std::chrono::microseconds kLongest{10'000};
  std::chrono::microseconds length_{100};
};

class TorchStore final : public Store {
 public:
  TorchStore(c10::intrusive_ptr<c10d::Store> store, std::string prefix)
      : store_(std::move(store)), prefix_(std::move(prefix)) {}

  Status set(std::string_view key, std::span<const std::byte> value) override {
    return guarded("set", key, [&] {
      const auto* const bytes = reinterpret_cast<const std::uint8_t*>(value.data());
      store_->set(prefix_ + std::string(key),
                  std::vector<std::uint8_t>(bytes, bytes + value.size()));
      return Status();
    });
  }

  Result<std::vector<std::byte>> get(std::string_view key, Deadline deadline) override {
    std::vector<std::byte> value;
    Status got = guarded("get", key, [&] {
      const std::string name = prefix_ + std::string(key);
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.left());
      // Both a passed time limit and a lost server make wait() throw.
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
  const std::string prefix_;
};

std::string random_text() {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::random_device device;
  std::string text;
  for (std::size_t i = 0; i < kRandomBytes; ++i) {
    const unsigned byte = device();
    text += kDigits[byte & 15];
    text += kDigits[byte >> 4 & 15];
  }
  return text;
}

/// The first key of a meeting. Its value, set by rank 0, is the name followed by the secret.
constexpr const char* kCurrent = "xylem/current";

struct Keys {
  std::string prefix;

  explicit Keys(const std::string& name) : prefix("xylem/" + name + "/") {}
  std::string of_member(int rank) const { return prefix + "member/" + std::to_string(rank); }
  std::string confirmed(int rank) const { return prefix + "confirmed/" + std::to_string(rank); }
};

Meeting meeting_of(const c10::intrusive_ptr<c10d::Store>& store, const std::string& current) {
  std::string name = current.substr(0, 2 * kRandomBytes);
  const Keys keys(name);
  return {std::make_shared<TorchStore>(store, keys.prefix), std::move(name),
          current.substr(2 * kRandomBytes)};
}

Result<Meeting> host(const c10::intrusive_ptr<c10d::Store>& store, int size, Deadline deadline) {
  const std::string current = random_text() + random_text();
  Meeting meeting = meeting_of(store, current);
  const Keys keys(meeting.name);
  store->set(kCurrent, current);
  std::string missing;
  for (int rank = 1; rank < size; ++rank) {
    if (is_set(*store, keys.of_member(rank), deadline)) {
      store->set(keys.confirmed(rank), store->get_to_str(keys.of_member(rank)));
    } else {
      missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
    }
  }
  if (missing.empty()) return meeting;
  return failure(Code::timed_out, "of the group's " + std::to_string(size) +
                                      " ranks these did not "
                                      "come: " +
                                      missing +
                                      "; all members must call "
                                      "init_process_group or new_group");
}

Result<Meeting> join(const c10::intrusive_ptr<c10d::Store>& store, int rank, Deadline deadline) {
  const std::string number = random_text();
  std::string current;
  for (Pause pause; !deadline.passed(); pause.take(deadline)) {
    if (!store->check({kCurrent})) continue;
    if (std::string found = store->get_to_str(kCurrent); found != current) {
      current = std::move(found);
      store->set(Keys(current.substr(0, 2 * kRandomBytes)).of_member(rank), number);
    }
    const std::string key = Keys(current.substr(0, 2 * kRandomBytes)).confirmed(rank);
    if (store->check({key}) && store->get_to_str(key) == number) return meeting_of(store, current);
  }
  return failure(Code::timed_out,
                 "the group's rank 0 did not come in time; all members must call "
                 "init_process_group or new_group",
                 0);
}

}  // namespace

bool is_set(c10d::Store& store, const std::string& key, Deadline deadline) {
  for (Pause pause; !store.check({key}); pause.take(deadline)) {
    if (deadline.passed()) return false;
  }
  return true;
}

Result<Meeting> meet(const c10::intrusive_ptr<c10d::Store>& store,
                     const Member& member,
                     Deadline deadline) {
  try {
    return member.rank == 0 ? host(store, member.size, deadline)
                            : join(store, member.rank, deadline);
  } catch (const std::exception& error) {
    return failure(Code::internal, std::string("torch's store failed: ") + error.what());
  }
}

}  // namespace xylem::pytorch
