// SPDX-License-Identifier: Apache-2.0
#include "jobs.h"

#include "failure.h"
#include "store.h"
#include "xylem/base/mutex.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <pthread.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <utility>

namespace xylem::pytorch {
namespace {

using std::chrono::milliseconds;
using JobPtr = std::shared_ptr<SharedJob>;

/// After all members have been found, the start of their job has at least this time limit. The
/// group's own limit is meant for waiting for other ranks. It may be as short as a second, in which
/// a busy machine may not complete the start.
constexpr milliseconds kStartOfAll{30'000};

/// The jobs of this process. Thread-safe.
class Jobs {
 public:
  /// Never destroyed, since groups may be destroyed after static objects are.
  static Jobs& get() {
    static auto* const kJobs = new Jobs;  // NOLINT(cppcoreguidelines-owning-memory)
    return *kJobs;
  }
  void add(const JobPtr& job) {
    const Lock lock(mutex_);
    std::erase_if(jobs_, [](const auto& other) { return other.expired(); });
    jobs_.push_back(job);
  }
  /// The jobs with this `world_rank`, oldest first.
  std::vector<JobPtr> of(std::uint64_t world_rank) const {
    std::vector<JobPtr> found;
    const Lock lock(mutex_);
    for (const auto& one : jobs_) {
      if (JobPtr job = one.lock(); job && job->world_rank == world_rank) {
        found.push_back(std::move(job));
      }
    }
    return found;
  }

 private:
  Jobs() {
    // No other thread may hold the lock when a process forks: it would stay locked in the child.
    pthread_atfork(lock, unlock, unlock);
  }

  static void lock() XYLEM_LOCKING(acquire_capability(get().mutex_)) { get().mutex_.lock(); }
  static void unlock() XYLEM_LOCKING(release_capability(get().mutex_)) { get().mutex_.unlock(); }

  mutable Mutex mutex_;
  std::vector<std::weak_ptr<SharedJob>> jobs_ XYLEM_LOCKING(guarded_by(mutex_));
};

/// A job that this rank could use for a new group.
struct Offer {
  JobPtr job;
  Seat seat;  ///< Empty if this rank has no seat left in the job.
};

/// Whether a new group may use the job, that is, whether no rank has left it or was lost. After
/// ranks have left a job, the remaining ranks may lack the connections over which they learn of
/// each other's failures (docs/pytorch.md). Then a new group starts another job.
bool is_whole(const SharedJob& job) {
  for (std::uint32_t rank = 0; rank < job.runtime.size(); ++rank) {
    if (job.runtime.is_without(rank)) return false;
  }
  return true;
}

/// The jobs that this rank could use, with a seat in each.
std::vector<Offer> offers_of(std::uint64_t world_rank) {
  std::vector<Offer> offers;
  for (JobPtr& job : Jobs::get().of(world_rank)) {
    if (!is_whole(*job)) continue;
    auto seat = job->runtime.take_seat();
    if (seat) {
      offers.push_back({std::move(job), *std::move(seat)});
    } else if (seat.status().code() == Code::exhausted) {
      offers.push_back({std::move(job), {}});
    }  // After any other error, the job belongs to the parent of this forked process.
  }
  return offers;
}

/// The entry of a card for one job: "<name>:<rank in the job>:<seat>".
struct Entry {
  std::string job;
  Formation::Member member;
};

std::string card_of(const std::vector<Offer>& offers) {
  std::string card;
  for (const auto& [job, seat] : offers) {
    card +=
        c10::str(card.empty() ? "" : " ", job->name, ":", job->runtime.rank(), ":", seat.number());
  }
  return card;
}

std::vector<Entry> read_card(const std::string& card) {
  std::vector<Entry> entries;
  std::istringstream words(card);
  for (std::string word; words >> word;) {
    Entry entry;
    char colon = 0;
    std::istringstream parts(word);
    std::getline(parts, entry.job, ':');
    parts >> entry.member.rank >> colon >> entry.member.seat;
    if (!parts || colon != ':') {
      check(failure(Code::internal, "a card in torch's store cannot be read: " + word));
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

/// A job of which all members of the new group are ranks, and the ranks and seats of the members in
/// this job.
struct Choice {
  std::string job;  ///< Its name; empty if there is no such job.
  std::vector<Formation::Member> members;
};

Choice choose(const std::vector<std::string>& cards) {
  std::vector<std::vector<Entry>> all;
  all.reserve(cards.size());
  for (const std::string& card : cards) all.push_back(read_card(card));
  for (const Entry& first : all.front()) {
    Choice choice{first.job, {}};
    std::set<std::uint32_t> ranks;
    for (const std::vector<Entry>& entries : all) {
      const auto entry = std::ranges::find(entries, first.job, &Entry::job);
      if (entry == entries.end()) break;
      choice.members.push_back(entry->member);
      ranks.insert(entry->member.rank);
    }
    if (ranks.size() == cards.size()) return choice;
  }
  return {};
}

std::uint64_t world_rank_of(const GroupOptions& group, std::size_t rank) {
  return group.global_ranks.empty() ? rank : group.global_ranks[rank];
}

/// Starts a job for the members of the group.
JobPtr start(const Rendezvous& rendezvous, const GroupOptions& group, Deadline deadline) {
  auto job = std::make_shared<SharedJob>();
  job->name = rendezvous.name;
  job->world_rank = world_rank_of(group, static_cast<std::size_t>(group.rank));
  job->note = world_ranks_note(group.global_ranks);
  xylem::Options options;
  options.rank = static_cast<std::uint32_t>(group.rank);
  options.size = static_cast<std::uint32_t>(group.size);
  options.store = rendezvous.store;
  options.job = rendezvous.name;
  // Everybody with access to torch's store can read this secret, so a secret set by the user takes
  // precedence.
  options.fallback_secret = rendezvous.secret;
  options.start_timeout = std::max(std::chrono::ceil<milliseconds>(deadline.left()), kStartOfAll);
  options.timeout = group.timeout;
  // torch.distributed has collectives of tensors of one kind of device only.
  options.has_same_memory = true;
  auto runtime = Runtime::create(options);
  if (!runtime) check(runtime.status(), remedy_of_group_limit(runtime.status()) + job->note);
  job->runtime = std::move(runtime).value();
  Jobs::get().add(job);
  return job;
}

/// Forms the group's communicator in a job of all members.
Membership form(std::vector<Offer> offers,
                Choice choice,
                const Rendezvous& rendezvous,
                const GroupOptions& group) {
  for (std::size_t rank = 0; rank < choice.members.size(); ++rank) {
    if (choice.members[rank].seat != 0) continue;
    check(failure(Code::exhausted,
                  c10::str("no group can be made: rank ", world_rank_of(group, rank),
                           " has 1024 groups already; destroy those that are not in use "
                           "(torch.distributed.destroy_process_group)")));
  }
  const auto chosen =
      std::ranges::find(offers, choice.job, [](const Offer& offer) { return offer.job->name; });
  Formation formation;
  // The name is random, so its first 64 bits identify the communicator.
  formation.uid = std::stoull(rendezvous.name.substr(0, 16), nullptr, 16);
  formation.members = std::move(choice.members);
  formation.timeout = group.timeout;
  formation.has_same_memory = true;
  auto formed = chosen->job->runtime.form(std::move(chosen->seat), formation);
  if (!formed) {
    check(formed.status(), remedy_of_group_limit(formed.status()) + chosen->job->note);
  }
  return {chosen->job, *std::move(formed), rendezvous.name};
}

}  // namespace

Membership join_group(const c10::intrusive_ptr<c10d::Store>& store, const GroupOptions& group) {
  // The members must arrive within the time limit of the group's operations. That limit may be
  // unlimited, so torch's default limit applies, too.
  const auto limit = std::min<milliseconds>(group.timeout, kBackendDefaultTimeout);
  const Deadline deadline = Deadline::after(limit);
  auto offers = offers_of(world_rank_of(group, static_cast<std::size_t>(group.rank)));
  std::vector<std::uint64_t> world_ranks;
  for (std::size_t rank = 0; std::cmp_less(rank, group.size); ++rank) {
    world_ranks.push_back(world_rank_of(group, rank));
  }
  // The lists of members are not compared for a group of one rank, which waits for no other rank.
  const bool is_compared =
      group.size > 1 && !group.global_ranks.empty() && !is_hash(group.name) && !offers.empty();
  const Member self{group.rank, world_ranks, is_compared ? offers.front().job->name : ""};
  const auto rendezvous = find_members(store, self, card_of(offers), deadline);
  if (!rendezvous) check(rendezvous.status(), remedy_of_group_limit(rendezvous.status()));
  Choice choice = choose(rendezvous->cards);
  if (!choice.job.empty()) return form(std::move(offers), std::move(choice), *rendezvous, group);
  JobPtr job = start(*rendezvous, group, deadline);
  Communicator world = job->runtime.world();
  return {std::move(job), std::move(world), rendezvous->name};
}

}  // namespace xylem::pytorch
