// SPDX-License-Identifier: Apache-2.0
#include "store.h"

#include "failure.h"

#include <c10/util/StringUtil.h>
#include <c10/util/hash.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <optional>
#include <string_view>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>
#include <vector>

namespace xylem::pytorch {
namespace {

constexpr std::size_t kRandomBytes = 16;

/// The pause between two checks of a store. It is a fraction of the time since the first check, so
/// polling adds little to the time of waiting.
class Pause {
 public:
  void take(Deadline deadline) {
    constexpr std::chrono::microseconds kShortest{50}, kLongest{10'000};
    constexpr int kShare = 8;  // A pause is at most this part of the time since the first check.
    const Clock::duration pause =
        std::clamp<Clock::duration>((Clock::now() - begun_) / kShare, kShortest, kLongest);
    std::this_thread::sleep_for(std::min<Clock::duration>(pause, deadline.left()));
  }

 private:
  const Clock::time_point begun_ = Clock::now();
};

/// The value of a key, or nothing if it is not set; values are not empty. This takes one request to
/// the store, whereas check() and get() together take three.
std::optional<std::string> peek(c10d::Store& store, const std::string& key) {
  // compareSet() changes nothing here, since no key has the expected value. It returns the value of
  // a key that is set, and the expected value for a key that is not set.
  static const std::vector<std::uint8_t> kNever{'?'};
  std::vector<std::uint8_t> value;
  try {
    value = store.compareSet(key, kNever, kNever);
  } catch (const std::exception&) {  // Some stores do not have compareSet().
    if (!store.check({key})) return std::nullopt;
    value = store.get(key);
  }
  if (value.empty() || value == kNever) return std::nullopt;
  return std::string(value.begin(), value.end());
}

/// The value of a key, once it is set. Nothing if the key is not set before the deadline, or if
/// `stop` returns true. `stop` is called at every eighth check.
template <typename Stop>
std::optional<std::string> value_of(c10d::Store& store,
                                    const std::string& key,
                                    Deadline deadline,
                                    const Stop& stop) {
  constexpr unsigned kLooks = 8;
  unsigned looks = 0;
  for (Pause pause;; pause.take(deadline)) {
    if (auto value = peek(store, key)) return value;
    if (deadline.passed() || (++looks % kLooks == 0 && stop())) return std::nullopt;
  }
}

std::optional<std::string> value_of(c10d::Store& store, const std::string& key, Deadline deadline) {
  return value_of(store, key, deadline, [] { return false; });
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines(1);
  for (const char letter : text) {
    if (letter == '\n') lines.emplace_back();
    else lines.back() += letter;
  }
  return lines;
}

Status did_not_come(std::size_t size, const std::string& missing) {
  return failure(Code::timed_out,
                 "of the group's " + std::to_string(size) +
                     " ranks these did not come: " + missing +
                     "; all members must call init_process_group, or new_group with "
                     "the same list of ranks");
}

/// Reads the prefix of a PrefixStore, which has no public function for this.
struct Prefixed : c10d::PrefixStore {
  static const std::string& of(const c10d::PrefixStore& store) {
    return store.*(&Prefixed::prefix_);
  }
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
      const auto found = value_of(*store_, prefix_ + std::string(key), deadline);
      if (!found) return not_set(key);
      const auto* const begin = reinterpret_cast<const std::byte*>(found->data());
      value.assign(begin, begin + found->size());
      return Status();
    });
    if (!got) return got;
    return value;
  }

 private:
  static Status not_set(std::string_view key) {
    return failure(Code::timed_out, "the key " + std::string(key) +
                                        " was not set in torch's store in time: the rank that sets "
                                        "it has not called init_process_group or new_group");
  }
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

std::string text_of(const std::vector<std::uint64_t>& ranks) {
  return c10::str("[", c10::Join(", ", ranks), "]");
}

/// Checks that the ranks of a job call new_group with the same list of ranks. The first rank to
/// call stores its list. A rank with a different list stores its own list under another key, where
/// all ranks find it.
class Lists {
 public:
  Lists(c10d::Store& store, const Member& self)
      : store_(store),
        rank_(self.world_ranks[static_cast<std::size_t>(self.rank)]),
        list_(text_of(self.world_ranks)),
        first_(self.job.empty() ? "" : "xylem/" + self.job + "/list"),
        other_(first_ + "/other") {}

  /// Stores this rank's list if it is the first. Fails if the first list differs from it.
  Status come() {
    if (first_.empty()) return {};
    const std::string mine = std::to_string(rank_) + " " + list_;
    const std::vector<std::uint8_t> bytes(mine.begin(), mine.end());
    std::vector<std::uint8_t> first;
    try {
      first = store_.compareSet(first_, {}, bytes);
    } catch (const std::exception&) {  // Some stores do not have compareSet().
      if (!store_.check({first_})) store_.set(first_, bytes);
      first = store_.get(first_);
    }
    const Status agrees = compare({first.begin(), first.end()});
    if (!agrees) store_.set(other_, bytes);
    return agrees;
  }
  /// Fails if a rank has stored a list that differs from this rank's list.
  Status look() const {
    if (first_.empty()) return {};
    const auto other = peek(store_, other_);
    return other ? compare(*other) : Status();
  }

 private:
  Status compare(const std::string& theirs) const {
    const auto space = theirs.find(' ');
    if (space == std::string::npos || theirs.substr(space + 1) == list_) return {};
    return failure(Code::mismatch,
                   c10::str("rank ", rank_, " calls new_group with the ranks ", list_, ", rank ",
                            theirs.substr(0, space), " with ", theirs.substr(space + 1),
                            "; all ranks must make the same groups in the same order"));
  }

  c10d::Store& store_;
  const std::uint64_t rank_;
  const std::string list_, first_, other_;
};

/// The key under which rank 0 stores the name of the rendezvous, followed by the secret. The key
/// depends on the list of members, so that only ranks with the same list find each other.
std::string current_key(const Member& member) {
  return "xylem/" + c10::sha1(text_of(member.world_ranks)).str() + "/current";
}

/// The keys of one rendezvous.
struct Keys {
  std::string prefix;

  explicit Keys(const std::string& name) : prefix("xylem/" + name + "/") {}
  std::string of_member(std::size_t rank) const { return prefix + "card/" + std::to_string(rank); }
  /// All cards, one in each line. The first line is empty, or lists the members that are missing.
  std::string of_all() const { return prefix + "cards"; }
};

std::string name_in(const std::string& current) { return current.substr(0, 2 * kRandomBytes); }

/// A member that stops waiting stores this text in place of its card.
constexpr const char* kHasLeft = "gone";

/// A card as it is stored: a random number, which distinguishes it from cards of earlier
/// rendezvous, and the text.
std::string numbered(const std::string& card) { return random_text() + " " + card; }

Rendezvous rendezvous_of(const c10::intrusive_ptr<c10d::Store>& store,
                         const std::string& current,
                         const std::vector<std::string>& numbered_cards) {
  const std::string name = name_in(current);
  Rendezvous rendezvous{std::make_shared<TorchStore>(store, Keys(name).prefix),
                        name,
                        current.substr(2 * kRandomBytes),
                        {}};
  for (const std::string& card : numbered_cards) {
    rendezvous.cards.push_back(card.substr(2 * kRandomBytes + 1));
  }
  return rendezvous;
}

Result<Rendezvous> host(const c10::intrusive_ptr<c10d::Store>& store,
                        const Member& self,
                        const std::string& card,
                        const Lists& lists,
                        Deadline deadline) {
  const std::string current = random_text() + random_text();
  const Keys keys(name_in(current));
  std::vector<std::string> cards{numbered(card)};
  const std::size_t size = self.world_ranks.size();
  // A group of one rank has no other members to find.
  if (size == 1) return rendezvous_of(store, current, cards);
  store->set(current_key(self), current);
  // If reading the cards takes long, a member whose card was read early may have stopped waiting.
  // So all cards are read again.
  constexpr std::chrono::milliseconds kLong{100};
  const auto begun = Clock::now();
  Status agrees;
  const auto disagree = [&] { return !(agrees = lists.look()); };
  const auto read_cards = [&] {
    cards.resize(1);
    for (std::size_t rank = 1; rank < size && agrees; ++rank) {
      cards.push_back(value_of(*store, keys.of_member(rank), deadline, disagree).value_or(""));
    }
  };
  read_cards();
  if (Clock::now() - begun > kLong) read_cards();
  if (!agrees) return agrees;
  std::string missing;
  for (std::size_t rank = 1; rank < size; ++rank) {
    if (cards[rank] == kHasLeft) cards[rank].clear();
    if (!cards[rank].empty()) continue;
    missing += (missing.empty() ? "" : ", ") + std::to_string(self.world_ranks[rank]);
  }
  std::string all = missing;
  for (const std::string& one : cards) all += "\n" + one;
  store->set(keys.of_all(), all);
  if (missing.empty()) return rendezvous_of(store, current, cards);
  return did_not_come(size, missing);
}

/// The part of a member other than rank 0: the member polls for the name that rank 0 has drawn, and
/// then for the list of all cards under that name.
class Joining {
 public:
  Joining(const c10::intrusive_ptr<c10d::Store>& store, const Member& self, const std::string& card)
      : store_(store), self_(self), first_key_(current_key(self)), own_(numbered(card)) {}

  /// Reads the name that rank 0 has stored. If the name is new, stores this member's card under it.
  /// But the new name may belong to the next group of the same members: rank 0 draws it as soon as
  /// it has stored the cards of this group. So if the list of cards under the previous name
  /// includes this member's card, the rendezvous is complete: returns this list, and ignores the
  /// new name.
  std::optional<std::vector<std::string>> find_name() {
    auto found = peek(*store_, first_key_);
    if (!found || *found == current_) return std::nullopt;
    if (auto all = find_cards()) return all;
    current_ = *std::move(found);
    is_of_another_ = false;
    store_->set(Keys(name_in(current_)).of_member(rank()), own_);
    return std::nullopt;
  }
  bool has_name() const noexcept { return !current_.empty(); }
  /// Whether the name is that of an earlier rendezvous. Then rank 0 will draw another name.
  bool is_of_another() const noexcept { return is_of_another_; }
  /// The lines stored under Keys::of_all(), if they include this member's card.
  std::optional<std::vector<std::string>> find_cards() {
    if (!has_name()) return std::nullopt;
    const auto all = peek(*store_, Keys(name_in(current_)).of_all());
    if (!all) return std::nullopt;
    std::vector<std::string> lines = lines_of(*all);
    const std::size_t size = self_.world_ranks.size();
    is_of_another_ = lines.size() != size + 1 || lines[rank() + 1] != own_;
    return is_of_another_ ? std::nullopt : std::optional(std::move(lines));
  }
  const std::string& current() const noexcept { return current_; }
  /// Stores kHasLeft, so that rank 0 does not count this member.
  void abandon() {
    if (has_name()) store_->set(Keys(name_in(current_)).of_member(rank()), kHasLeft);
  }

 private:
  std::size_t rank() const noexcept { return static_cast<std::size_t>(self_.rank); }

  const c10::intrusive_ptr<c10d::Store>& store_;
  const Member& self_;
  const std::string first_key_;
  const std::string own_;  ///< What this member publishes for the others: a number and its card.
  std::string current_;    ///< The name of the rendezvous and the secret.
  bool is_of_another_ = false;
};

Result<Rendezvous> join(const c10::intrusive_ptr<c10d::Store>& store,
                        const Member& self,
                        const std::string& card,
                        const Lists& lists,
                        Deadline deadline) {
  constexpr unsigned kLooksForCards = 8;  // Checks of the cards per check of name and lists.
  // Wait a little longer than the limit: rank 0, which reports the missing members, may reach its
  // own limit later.
  constexpr std::chrono::seconds kForWordOfFirst{1};
  const Deadline last = Deadline::after(deadline.left() + kForWordOfFirst);
  Joining joining(store, self, card);
  unsigned looks = 0;
  for (Pause pause; !(joining.has_name() ? last : deadline).passed(); pause.take(last)) {
    std::optional<std::vector<std::string>> lines;
    const bool needs_name = !joining.has_name() || joining.is_of_another();
    const bool looks_around = ++looks % kLooksForCards == 0;
    if (looks_around) XYLEM_TRY(lists.look());
    if (needs_name || looks_around) lines = joining.find_name();
    if (!lines && !joining.is_of_another()) lines = joining.find_cards();
    if (!lines) continue;
    const std::string missing = lines->front();
    lines->erase(lines->begin());
    if (!missing.empty()) return did_not_come(self.world_ranks.size(), missing);
    return rendezvous_of(store, joining.current(), *lines);
  }
  joining.abandon();
  const std::string first = "rank " + std::to_string(self.world_ranks.front());
  const bool has_come = joining.has_name() && !joining.is_of_another();
  return failure(Code::timed_out,
                 first + ", the first of the group, " +
                     (has_come ? "still waits for others" : "did not come in time") +
                     "; all members must call init_process_group, or new_group with the same "
                     "list of ranks");
}

}  // namespace

void fill_at_random(void* bytes, std::size_t size) {
  // Not std::random_device: where it uses the processor's instruction, it takes 20 us for each
  // number.
  if (::getrandom(bytes, size, 0) != static_cast<ssize_t>(size)) {
    check(failure(Code::internal, c10::str("no random numbers: ", std::strerror(errno))));
  }
}

std::string random_text() {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::array<unsigned char, kRandomBytes> bytes{};
  fill_at_random(bytes.data(), bytes.size());
  std::string text;
  for (const unsigned byte : bytes) {
    text += kDigits[byte & 15];
    text += kDigits[byte >> 4 & 15];
  }
  return text;
}

bool is_set(c10d::Store& store, const std::string& key, Deadline deadline) {
  return value_of(store, key, deadline).has_value();
}

bool is_hash(const std::string& group_name) {
  constexpr std::size_t kHashDigits = 40;
  return group_name.size() == kHashDigits &&
         group_name.find_first_not_of("0123456789abcdef") == std::string::npos;
}

c10::intrusive_ptr<c10d::Store> meeting_place(const c10::intrusive_ptr<c10d::Store>& store,
                                              const std::string& group_name) {
  auto* const of_device = dynamic_cast<c10d::PrefixStore*>(store.get());
  if (!is_hash(group_name) || of_device == nullptr) return store;
  const auto next = of_device->getUnderlyingStore();
  auto* const of_group = dynamic_cast<c10d::PrefixStore*>(next.get());
  if (of_group == nullptr || Prefixed::of(*of_group) != group_name + "/") return store;
  return c10::make_intrusive<c10d::PrefixStore>("hashed/" + Prefixed::of(*of_device),
                                                of_group->getUnderlyingStore());
}

Result<Rendezvous> find_members(const c10::intrusive_ptr<c10d::Store>& store,
                                const Member& member,
                                const std::string& card,
                                Deadline deadline) {
  try {
    Lists lists(*store, member);
    XYLEM_TRY(lists.come());
    return member.rank == 0 ? host(store, member, card, lists, deadline)
                            : join(store, member, card, lists, deadline);
  } catch (const std::exception& error) {
    return failure(Code::internal, std::string("torch's store failed: ") + error.what());
  }
}

}  // namespace xylem::pytorch
