// SPDX-License-Identifier: Apache-2.0
//
// PMIx as a store: Put and Commit pass values to the launcher. A Fence that collects data
// distributes them to all hosts. Get then finds them on this host.
#include "bootstrap/pmix_store.h"

#include "xylem/base/mutex.h"

#include <fmt/format.h>

#ifdef XYLEM_HAVE_PMIX
#include "bootstrap/rank_set.h"
#include "bootstrap/store_rules.h"

#include <pmix.h>

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <string>
#endif

namespace xylem::runtime {

#ifndef XYLEM_HAVE_PMIX

Result<std::shared_ptr<Store>> open_pmix_store(std::uint32_t /*rank*/, std::uint32_t /*size*/) {
  return failure(
      Code::unsupported,
      "this job was started by Open MPI, and Xylem was built without PMIx: set "
      "XYLEM_RENDEZVOUS (tcp://host:port of rank 0), or build where libpmix-dev is installed");
}

#else

namespace {

/// The functions of the loaded library that Xylem calls. The library is never unloaded, since it
/// has threads.
struct PmixLibrary {
  decltype(&PMIx_Init) init = nullptr;
  decltype(&PMIx_Finalize) finalize = nullptr;
  decltype(&PMIx_Put) put = nullptr;
  decltype(&PMIx_Commit) commit = nullptr;
  decltype(&PMIx_Fence_nb) fence = nullptr;
  decltype(&PMIx_Get_nb) get = nullptr;
  decltype(&PMIx_Error_string) error_string = nullptr;

  static Result<PmixLibrary> load();
};

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

Result<PmixLibrary> PmixLibrary::load() {
  constexpr const char* kName = "libpmix.so.2";
  void* const library = ::dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  PmixLibrary found;
  const bool complete =
      library != nullptr && find(library, "PMIx_Init", found.init) &&
      find(library, "PMIx_Finalize", found.finalize) && find(library, "PMIx_Put", found.put) &&
      find(library, "PMIx_Commit", found.commit) && find(library, "PMIx_Fence_nb", found.fence) &&
      find(library, "PMIx_Get_nb", found.get) &&
      find(library, "PMIx_Error_string", found.error_string);
  if (complete) return found;
  return failure(
      Code::unsupported,
      fmt::format("this job was started by Open MPI, and {} cannot be used ({}): install "
                  "libpmix2, or set XYLEM_RENDEZVOUS (tcp://host:port of rank 0)",
                  kName, library == nullptr ? ::dlerror() : "a function is missing"));
}

/// This process's use of PMIx, from the first start of Xylem until the process exits. PMIx is not
/// finalized and initialized again between two starts of Xylem, since this races with the
/// launcher's handling of a rank that ends: sometimes a key that was set is then not found (Open
/// MPI 4.1.4, once in some hundred starts).
class Session {
 public:
  /// Opens the session at the first call. PMIx is finalized when the process exits. The object is
  /// never destroyed, since destructors of the application may still use it.
  static const Result<std::unique_ptr<Session>>& of_this_process() {
    // NOLINTNEXTLINE(cppcoreguidelines-owning-memory)
    static const auto& session = *new Result<std::unique_ptr<Session>>(open());
    static const AtExit kEnds;
    return session;
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() = default;

  const PmixLibrary& library() const noexcept { return library_; }
  const pmix_proc_t& self() const noexcept { return self_; }
  /// Numbers the starts of Xylem, so that each start has its own keys. All ranks start Xylem in the
  /// same order.
  std::uint32_t next_start() noexcept { return starts_.fetch_add(1); }

  static Status failed(const PmixLibrary& library, std::string_view doing, pmix_status_t status) {
    return failure(Code::link_lost,
                   fmt::format("{} failed: {}; set XYLEM_RENDEZVOUS to start without PMIx", doing,
                               library.error_string(status)));
  }

 private:
  struct AtExit {
    AtExit() noexcept = default;
    AtExit(const AtExit&) = delete;
    AtExit& operator=(const AtExit&) = delete;
    ~AtExit() {
      const auto& session = of_this_process();
      // In a forked child the session belongs to the parent.
      const bool is_ours = session && (*session)->process_ == ::getpid();
      if (is_ours) (*session)->library_.finalize(nullptr, 0);
    }
  };

  Session(const PmixLibrary& library, const pmix_proc_t& self) : library_(library), self_(self) {}
  static Result<std::unique_ptr<Session>> open() {
    XYLEM_TRY(const PmixLibrary library, PmixLibrary::load());
    pmix_proc_t self{};
    const pmix_status_t status = library.init(&self, nullptr, 0);
    if (status != PMIX_SUCCESS) return failed(library, "PMIx_Init", status);
    return std::unique_ptr<Session>(new Session(library, self));
  }

  PmixLibrary library_;
  pmix_proc_t self_;
  ::pid_t process_ = ::getpid();
  std::atomic<std::uint32_t> starts_{0};
};

/// A request to PMIx and its answer. The answer arrives on a thread of PMIx, possibly after the
/// wait for it has timed out. PMIx reads `about` and `flag` until it has answered.
struct Answer {
  pmix_proc_t about{};
  pmix_info_t flag{};
  Mutex mutex;
  Condition ready;
  std::optional<pmix_status_t> status XYLEM_LOCKING(guarded_by(mutex));
  std::vector<std::byte> value XYLEM_LOCKING(guarded_by(mutex));
};
using SharedAnswer = std::shared_ptr<Answer>;

void take_status(pmix_status_t status, void* owner) noexcept {
  const std::unique_ptr<SharedAnswer> answer(static_cast<SharedAnswer*>(owner));
  const Lock lock((*answer)->mutex);
  (*answer)->status = status;
  (*answer)->ready.notify_one();
}

void take_value(pmix_status_t status, pmix_value_t* value, void* owner) noexcept {
  if (status == PMIX_SUCCESS && value != nullptr && value->type == PMIX_BYTE_OBJECT) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(value->data.bo.bytes);
    Answer& answer = **static_cast<SharedAnswer*>(owner);
    const Lock lock(answer.mutex);
    answer.value.assign(bytes, bytes + value->data.bo.size);
  }
  take_status(status, owner);
}

/// Calls `ask`, which starts a request to PMIx, and blocks until PMIx has called take_status().
/// Returns the status; nothing if the deadline passes first.
template <typename Ask>
std::optional<pmix_status_t> wait_for_answer(const SharedAnswer& answer,
                                             Deadline deadline,
                                             Ask&& ask) {
  auto held = std::make_unique<SharedAnswer>(answer);
  const pmix_status_t asked = ask(held.get());
  if (asked != PMIX_SUCCESS) return asked;
  [[maybe_unused]] const SharedAnswer* given = held.release();  // take_status() deletes it.
  const Lock lock(answer->mutex);
  while (!answer->status && answer->ready.wait_until(answer->mutex, deadline)) {
  }
  return answer->status;
}

SharedAnswer make_question(const pmix_proc_t& self, pmix_rank_t about, const char* flag) {
  const auto answer = std::make_shared<Answer>();
  answer->about = self;
  answer->about.rank = about;
  std::strncpy(answer->flag.key, flag, PMIX_MAX_KEYLEN);
  answer->flag.value.type = PMIX_BOOL;
  answer->flag.value.data.flag = true;
  return answer;
}

class PmixStore final : public Store {
 public:
  PmixStore(Session& session, std::uint32_t size)
      : library_(session.library()),
        self_(session.self()),
        start_(session.next_start()),
        size_(size),
        joined_(size) {}

  Status open(std::uint32_t rank);
  Status set(std::string_view key, std::span<const std::byte> value) override;
  Result<std::vector<std::byte>> get(std::string_view key, Deadline deadline) override;

 private:
  Status failed(std::string_view doing, pmix_status_t status) const {
    return Session::failed(library_, doing, status);
  }
  std::string full_key(std::string_view key) const {
    return fmt::format("xylem.{}.{}", start_, key);
  }
  std::string here_key(std::uint32_t rank) const { return full_key(fmt::format("here.{}", rank)); }
  std::uint32_t owner_of(std::string_view key) const;
  Status put(const std::string& key, std::span<const std::byte> value);
  Status fence(Deadline deadline);
  /// The value of a key, if the launcher has it already.
  Result<std::vector<std::byte>> look_up(const std::string& key,
                                         std::uint32_t owner,
                                         Deadline deadline);
  Status who_is_missing();

  const PmixLibrary& library_;
  const pmix_proc_t self_;
  const std::uint32_t start_;
  const std::uint32_t size_;
  bool is_synchronized_ = false;
  Status fence_failed_;
  RankSet joined_;
  std::set<std::string, std::less<>> set_keys_;
};

Status PmixStore::open(std::uint32_t rank) {
  if (self_.rank != rank) {
    return failure(
        Code::mismatch,
        fmt::format("PMIx says that this is rank {}, OMPI_COMM_WORLD_RANK says {}: start one "
                    "program per mpirun, or set XYLEM_RENDEZVOUS",
                    self_.rank, rank));
  }
  return put(here_key(rank), {});
}

std::uint32_t PmixStore::owner_of(std::string_view key) const {
  const auto dot = key.rfind('.');
  if (dot == std::string_view::npos) return 0;
  std::uint32_t rank = 0;
  const char* const end = key.data() + key.size();
  const auto [stop, error] = std::from_chars(key.data() + dot + 1, end, rank);
  return error == std::errc() && stop == end && rank < size_ ? rank : 0;
}

Status PmixStore::set(std::string_view key, std::span<const std::byte> value) {
  XYLEM_TRY(check_entry(key, value.size()));
  if (owner_of(key) != self_.rank) {
    return failure(
        Code::invalid_argument,
        fmt::format("store key \"{}\" is rank {}'s to set under PMIx: end keys in a dot and "
                    "the rank that sets them",
                    key, owner_of(key)));
  }
  if (!set_keys_.emplace(key).second) return set_twice(key);
  is_synchronized_ = false;
  return put(full_key(key), value);
}

Status PmixStore::put(const std::string& key, std::span<const std::byte> value) {
  // The value is copied since PMIx's parameter is not const. A byte is prepended, since PMIx does
  // not support empty values.
  std::vector<std::byte> copy(1);
  copy.insert(copy.end(), value.begin(), value.end());
  pmix_value_t entry{};
  entry.type = PMIX_BYTE_OBJECT;
  entry.data.bo.bytes = reinterpret_cast<char*>(copy.data());
  entry.data.bo.size = copy.size();
  pmix_status_t status = library_.put(PMIX_GLOBAL, key.c_str(), &entry);
  if (status != PMIX_SUCCESS) return failed("PMIx_Put", status);
  status = library_.commit();
  return status == PMIX_SUCCESS ? Status() : failed("PMIx_Commit", status);
}

Status PmixStore::fence(Deadline deadline) {
  // After a time-out, the first fence of this rank is still pending. PMIx would match a second
  // fence of this rank with the first fence of other ranks, so no other fence is entered.
  if (!fence_failed_) return fence_failed_;
  const auto answer = make_question(self_, PMIX_RANK_WILDCARD, PMIX_COLLECT_DATA);
  const auto status = wait_for_answer(answer, deadline, [&](SharedAnswer* owner) {
    return library_.fence(&answer->about, 1, &answer->flag, 1, &take_status, owner);
  });
  if (!status) return fence_failed_ = who_is_missing();
  if (*status != PMIX_SUCCESS) return fence_failed_ = failed("PMIx_Fence", *status);
  is_synchronized_ = true;
  return {};
}

Status PmixStore::who_is_missing() {
  // The launcher's daemon on this host has at least the values of this host's ranks. It may need a
  // moment to get the values of other hosts' ranks.
  const Deadline soon = Deadline::after(std::chrono::seconds(1));
  joined_.add(self_.rank);
  for (const std::uint32_t rank : joined_.missing()) {
    if (look_up(here_key(rank), rank, soon)) joined_.add(rank);
  }
  if (!joined_.complete()) return joined_.missing_error();
  return failure(Code::timed_out, "not all ranks came to the launcher's fence in time");
}

Result<std::vector<std::byte>> PmixStore::get(std::string_view key, Deadline deadline) {
  XYLEM_TRY(check_entry(key, 0));
  if (!is_synchronized_) XYLEM_TRY(fence(deadline));
  return look_up(full_key(key), owner_of(key), Deadline::after(std::chrono::seconds(5)));
}

Result<std::vector<std::byte>> PmixStore::look_up(const std::string& key,
                                                  std::uint32_t owner,
                                                  Deadline deadline) {
  const auto answer = make_question(self_, owner, PMIX_IMMEDIATE);
  const auto status = wait_for_answer(answer, deadline, [&](SharedAnswer* held) {
    return library_.get(&answer->about, key.c_str(), &answer->flag, 1, &take_value, held);
  });
  const Lock lock(answer->mutex);
  if (status == PMIX_SUCCESS && !answer->value.empty()) {
    return std::vector(answer->value.begin() + 1, answer->value.end());
  }
  if (!status || *status == PMIX_ERR_NOT_FOUND || *status == PMIX_ERR_TIMEOUT) {
    return failure(
        Code::timed_out,
        fmt::format("rank {} did not set \"{}\" before the launcher's fence", owner, key));
  }
  return failed("PMIx_Get", *status);
}

}  // namespace

Result<std::shared_ptr<Store>> open_pmix_store(std::uint32_t rank, std::uint32_t size) {
  const auto& session = Session::of_this_process();
  XYLEM_TRY(session.status());
  const auto store = std::make_shared<PmixStore>(**session, size);
  XYLEM_TRY(store->open(rank));
  return std::shared_ptr<Store>(store);
}

#endif

}  // namespace xylem::runtime
