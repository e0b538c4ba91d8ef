// SPDX-License-Identifier: Apache-2.0
#include "backend.h"

#include "failure.h"
#include "python.h"
#include "store.h"
#include "xylem/runtime/info.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <functional>
#include <new>
#include <tuple>
#include <utility>

namespace xylem::pytorch {
namespace {

using c10d::OpType;
using std::chrono::milliseconds;

std::string group_label(const GroupOptions& group) {
  if (group.global_ranks.empty()) return "the world";
  return c10::str("the group of ranks ", group.global_ranks);
}

/// Whether Xylem has rejected the arguments of an operation. Such an operation has ended at once,
/// and the group is still usable.
bool is_refused(const xylem::Work& work) {
  if (!work.ended()) return false;
  const Status status = work.status();
  return !status && !breaks_group(status);
}

std::vector<std::uint32_t> job_ranks(const Communicator& group) {
  std::vector<std::uint32_t> ranks(group.size());
  for (std::uint32_t rank = 0; rank < group.size(); ++rank) ranks[rank] = group.world_rank(rank);
  return ranks;
}

/// Whether Xylem runs its progress thread. While only a stream waits for a call, no other thread
/// makes progress on the call.
bool has_progress_thread() {
  const auto settings = setting_infos();
  check(settings.status());
  return std::ranges::any_of(*settings, [](const SettingInfo& setting) {
    return setting.name == "XYLEM_PROGRESS_THREAD" && setting.value == "on";
  });
}

}  // namespace

Backend::Backend(const StorePtr& store, GroupOptions group)
    : c10d::Backend(group.rank, group.size),
      store_(meeting_place(store, group.name)),
      group_(std::move(group)),
      options_(c10::make_intrusive<Options>(kBackendName, group_.timeout)),
      membership_(join_group(store_, group_)),
      pending_(std::make_shared<Pending>(membership_.job->note, job_ranks(membership_.group))),
      on_devices_(std::make_shared<DeviceCaller>()),
      timeout_(group_.timeout.count()) {
  on_devices_->blocking_wait = has_progress_thread() ? group_.blocking_wait : BlockingWait::always;
  auto companion = membership_.group.companion();
  if (!companion) check(companion.status(), pending_->note());
  sequences_ = std::make_unique<CallSequences>(membership_.job, membership_.group,
                                               *std::move(companion), pending_, on_devices_);
  Recorder::dump_on_failure_of(membership_.group);  // Its companion fails with it.
  set_group(*options_, group_.name, group_.global_ranks);
  Recorder::get().set_place(label()->ranks[static_cast<std::size_t>(getRank())],
                            membership_.job->name);
  init();
}

Backend::~Backend() {
  if (python_is_ending() && !is_closed_) {
    // Some versions of torch destroy groups while the interpreter is being finalized. The exit
    // status, which says whether the process ends normally, is known only later. So the job, and
    // the objects that its operations use, are leaked here: they stay alive until the process ends.
    // NOLINTNEXTLINE(cppcoreguidelines-owning-memory)
    new (std::nothrow) auto(std::tuple(std::move(membership_), pending_, std::move(sequences_)));
    return;
  }
  // Release Python's lock, since a thread that runs a future's callback may wait for it.
  const WithoutPython released;
  shutdown();
  sequences_->for_each([](CallSequence& each) { each.sparse->stop(); });
  pending_->stop();
}

c10::intrusive_ptr<c10d::Backend::Options> Backend::getBackendOptions() { return options_; }

void Backend::setTimeout(milliseconds timeout) {
  options_->timeout = timeout;
  timeout_ = timeout.count();
}

c10::intrusive_ptr<c10d::Backend> Backend::split(const StorePtr& store,
                                                 const std::vector<int>& ranks,
                                                 const c10::intrusive_ptr<Options>& options) {
  const auto place = std::ranges::find(ranks, getRank());
  if (place == ranks.end()) return nullptr;
  GroupOptions part;
  part.rank = static_cast<int>(place - ranks.begin());
  part.size = static_cast<int>(ranks.size());
  part.timeout = options ? options->timeout : milliseconds(timeout_.load());
  part.blocking_wait = group_.blocking_wait;
  part.name = options ? group_name(*options) : group_.name;
  for (const int rank : ranks) {
    const auto member = peer("split", rank);
    part.global_ranks.push_back(group_.global_ranks.empty() ? member : group_.global_ranks[member]);
  }
  return c10::make_intrusive<Backend>(store, std::move(part));
}

void Backend::eagerConnectSingleDevice(at::Device device) {
  const auto memory = memory_of(device);
  // The result of bind() is not needed: if the devices form no mesh, the CPU carries out the calls.
  if (!memory) return;
  check(membership_.group.bind(*memory).status(), pending_->note());
  sequences_->note_bound(device);
}

// --- calls ---

TaskPtr Backend::make_task(OpType type, const char* title, const Tensors& inputs) {
  pending_->sweep();
  return c10::make_intrusive<Task>(
      getRank(), TaskName{type, title, sequences_->here().sequence.load()}, pending_, inputs);
}

milliseconds Backend::limit_of(milliseconds asked) const noexcept {
  return asked == c10d::kUnsetTimeout ? milliseconds(timeout_.load()) : asked;
}

std::shared_ptr<const GroupLabel> Backend::label() {
  CallSequence& sequence = sequences_->here();
  const Lock lock(sequence.labelling);
  if (!sequence.label || sequence.label->description != getGroupDesc()) {
    auto ranks = group_.global_ranks;
    for (auto rank = ranks.size(); std::cmp_less(rank, getSize()); ++rank) {
      ranks.push_back(rank);
    }
    // Torch's flight recorder compares the calls of a group by their numbers, so the sequence of
    // callbacks needs another group name.
    const char* const suffix = &sequence == &sequences_->program() ? "" : "/callbacks";
    sequence.label = std::make_shared<GroupLabel>(
        GroupLabel{group_.name + suffix, getGroupDesc(), std::move(ranks)});
  }
  return sequence.label;
}

Backend::WorkPtr Backend::submit(
    const TaskPtr& task, StartedCall begun, milliseconds timeout, const Tensors& inputs, int peer) {
  const milliseconds limit = limit_of(timeout);
  if (limit != group_.timeout) {
    for (const xylem::Work& work : begun.works) work.set_timeout(limit);
  }
  if (timeout != c10d::kUnsetTimeout) task->set_own_limit();
  const OpType type = task->name().type;
  std::uint64_t sequence = task->name().sequence;
  if (!is_message(type)) {
    // Number the operations as Xylem's errors do: rejected operations have no number.
    const auto made = std::ranges::count_if(begun.works, std::not_fn(is_refused));
    sequence = sequences_->here().sequence.fetch_add(static_cast<std::uint64_t>(made)) + 1;
  }
  const std::uint64_t messages = is_message(type) ? ++messages_ : messages_.load();
  const std::uint64_t record = Recorder::get().begin(
      label(), {task->name().title, type, sequence, messages, getRank(), peer, limit}, inputs,
      begun.outputs);
  task->set_numbers(sequence, record);
  // Move the tensors into the task before the statements below, which may throw: operations that
  // have begun use the tensors.
  task->adopt(std::move(begun));
  for (const xylem::Work& work : task->works()) {
    if (is_refused(work)) check(work.status(), pending_->note());
  }
  if (!is_message(type)) task->set_number(++sequences_->here().begun);
  const Lock lock(coalescing_);
  if (coalesced_) coalesced_->push_back(task);
  return task;
}

std::uint32_t Backend::peer(const char* what, std::int64_t rank) const {
  if (rank < 0 || rank >= getSize()) {
    refuse(c10::str(what, ": rank ", rank, " of ", group_label(group_), ", which has ", getSize()));
  }
  return static_cast<std::uint32_t>(rank);
}

void Backend::startCoalescing() {
  // If an exception leaves a coalescing block, torch does not call endCoalescing(). Then the tasks
  // of that block are still in the list. They are removed here, and continue as separate tasks.
  const Lock lock(coalescing_);
  coalesced_.emplace();
}

Backend::WorkPtr Backend::endCoalescing() {
  StartedCall begun;
  {
    const Lock lock(coalescing_);
    if (!coalesced_) refuse("coalescing has not begun");
    begun.parts = std::move(*coalesced_);
    coalesced_.reset();
  }
  for (const TaskPtr& part : begun.parts) {
    begun.works.append(part->works().begin(), part->works().end());
    begun.awaited.append(part->awaited().begin(), part->awaited().end());
    if (part->sparse().reducer) begun.sparse = part->sparse();
    begun.outputs.insert(begun.outputs.end(), part->outputs().begin(), part->outputs().end());
  }
  const OnDevice* const first = begun.parts.empty() ? nullptr : begun.parts.front()->device();
  const bool is_on_one_device = std::ranges::all_of(begun.parts, [&](const TaskPtr& part) {
    return first && part->device() && part->device()->device() == first->device();
  });
  // If the tensors are not all on one device, wait() blocks the calling thread.
  if (first && is_on_one_device) {
    begun.device = std::make_unique<OnDevice>(membership_.group, first->stream(), on_devices_);
  }
  const auto task = c10::make_intrusive<Task>(
      getRank(), TaskName{OpType::COALESCED, "xylem:coalesced", sequences_->here().sequence.load()},
      pending_, Tensors());
  task->adopt(std::move(begun));
  task->set_number(sequences_->here().begun);
  return task;
}

// --- the group ---

Backend::WorkPtr Backend::barrier(const c10d::BarrierOptions& options) {
  const TaskPtr task = make_task(OpType::BARRIER, "xylem:barrier", {});
  StartedCall begun;
  // As in other backends of torch.distributed, a barrier ends after all collectives called before
  // it: those of the program for a barrier of the program, those of callbacks for one in a
  // callback.
  const bool is_of_program = Pending::origin().is_program();
  begun.awaited = pending_->works_of([&](const Task& other) {
    return !is_message(other.name().type) && other.name().type != OpType::COALESCED &&
           other.is_of_program() == is_of_program;
  });
  begun.sparse = sequences_->here().sparse->calls_so_far();
  if (options.device && !options.device->is_cpu() && memory_of(*options.device)) {
    // Torch passes the current device, which some ranks may not have set.
    const c10::Device device = sequences_->bound_device(*options.device);
    begun.device = std::make_unique<OnDevice>(sequences_->collectives(), device, on_devices_);
  }
  begun.works.push_back(
      (begun.device ? begun.device->group() : sequences_->collectives()).barrier());
  return submit(task, std::move(begun), options.timeout, {});
}

void Backend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  const milliseconds limit = limit_of(options.timeout);
  const Deadline deadline = Deadline::after(limit);
  const std::uint64_t number = barriers_++;
  const auto prefix_of = [&](std::uint64_t barrier) {
    return c10::str("xylem/", membership_.name, "/monitored_barrier/", barrier, "/");
  };
  const std::string prefix = prefix_of(number);
  const auto fail = [&](const std::string& why) {
    check(failure(Code::timed_out, why), world_ranks_note(group_.global_ranks));
  };
  constexpr const char* kPassed = "passed";
  if (getRank() != 0) {
    store_->set(prefix + std::to_string(getRank()), kPassed);
    // Wait twice as long as rank 0 waits for the other ranks, so that rank 0 is the first to
    // report.
    if (!is_set(*store_, prefix + "verdict", Deadline::after(2 * limit))) {
      fail(c10::str("[Rank ", getRank(), "]: rank 0 did not pass monitoredBarrier in ",
                    limit.count(), " ms"));
    }
    const std::string verdict = store_->get_to_str(prefix + "verdict");
    if (verdict == kPassed) return;
    // The text is the same as gloo's, since programs search for it.
    fail(c10::str("Rank ", getRank(),
                  " successfully reached monitoredBarrier, but received errors while waiting for "
                  "send/recv from rank 0: ",
                  verdict));
  }
  if (limit <= milliseconds(0)) {
    fail(c10::str("Rank 0 timed out in monitoredBarrier after ", limit.count(), " ms"));
  }
  std::vector<int> missing;
  for (int rank = 1; rank < getSize() && (missing.empty() || wait_all_ranks); ++rank) {
    if (!is_set(*store_, prefix + std::to_string(rank), deadline)) missing.push_back(rank);
  }
  std::string verdict = kPassed;
  if (!missing.empty()) {
    verdict = c10::str("[Rank 0]: Rank", missing.size() == 1 ? " " : "s ", c10::Join(", ", missing),
                       " failed to pass monitoredBarrier in ", limit.count(), " ms");
  }
  store_->set(prefix + "verdict", verdict);
  if (missing.empty() && number > 0) {
    // All ranks have read the result of the previous barrier, so its keys can be deleted.
    for (int rank = 1; rank < getSize(); ++rank) {
      store_->deleteKey(prefix_of(number - 1) + std::to_string(rank));
    }
    store_->deleteKey(prefix_of(number - 1) + "verdict");
  }
  if (!missing.empty()) fail(verdict);
}

void Backend::abort() {
  if (is_closed_) return;
  sequences_->for_each([](CallSequence& each) { each.sparse->abort(); });
  (void)membership_.group.abort("torch.distributed aborted the group");
}

c10d::ErrorType Backend::getError() {
  return pending_->has_failed() ? c10d::ErrorType::COMM_ERROR : c10d::ErrorType::SUCCESS;
}

void Backend::shutdown() {
  // Callbacks that run during the shutdown may call this function again.
  if (is_closed_.exchange(true)) return;
  sequences_->for_each([](CallSequence& each) { each.sparse->close(); });
  // First wait for the operations for which streams wait, since later work of the streams uses
  // their results. Each operation ends by its time-out at the latest.
  for (const xylem::Work& work :
       pending_->works_of([](const Task& task) { return task.has_stream_waiters(); })) {
    (void)work.wait();
  }
  // Operations in progress may still complete, if the other ranks call them, too. Receives are
  // excluded, since they might wait for ever for a message.
  constexpr std::chrono::seconds kPatience{5};
  const Deadline deadline = Deadline::after(kPatience);
  const auto goes_through = [](const Task& task) {
    const OpType type = task.name().type;
    return type != OpType::RECV && type != OpType::RECVANYSOURCE && type != OpType::COALESCED;
  };
  for (const xylem::Work& work : pending_->works_of(goes_through)) {
    (void)work.wait_for(deadline.left());
  }
  // Destroy through a copy of the handle: another thread may be using `membership_.group` for a
  // call, which then fails.
  Communicator group = membership_.group;
  if (group.destroy().code() == Code::busy) {
    (void)group.abort("the group was destroyed while operations were under way");
    pending_->drain();
    (void)group.destroy();
  }
  pending_->drain();
  // If this is the last group of the job, the process leaves the job.
  membership_.job.reset();
}

}  // namespace xylem::pytorch
