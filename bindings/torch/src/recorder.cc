// SPDX-License-Identifier: Apache-2.0
#include "recorder.h"

#include "failure.h"
#include "store.h"
#include "xylem/xylem.h"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <torch/csrc/distributed/c10d/TraceUtils.h>
#include <torch/csrc/profiler/combined_traceback.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

namespace xylem::pytorch {
namespace {

using c10d::new_dict;
using c10d::new_list;

constexpr const char* kFormat = "2.4";

using Groups = std::map<std::string, std::shared_ptr<const GroupLabel>>;

std::int64_t now_ns() {
  using std::chrono::system_clock;
  return std::chrono::nanoseconds(system_clock::now().time_since_epoch()).count();
}

c10::IValue list_of(const std::vector<c10::IValue>& values) {
  auto list = new_list();
  for (const c10::IValue& value : values) list.push_back(value);
  return list;
}

c10::IValue described(const Groups& groups) {
  auto all = new_dict();
  for (const auto& [name, group] : groups) {
    auto one = new_dict();
    one.insert("name", name);
    one.insert("desc", group->description);
    one.insert("ranks", c10::str("[", c10::Join(", ", group->ranks), "]"));
    all.insert(name, one);
  }
  return all;
}

/// `wake` is the eventfd by which the signal handler wakes the thread that dumps. The handler does
/// nothing else. It acts only in the process `owner`, which installed it, and not in forked
/// children.
std::atomic<int> wake{-1};
std::atomic<pid_t> owner{0};

extern "C" void ask_for_dump(int /*number*/) {
  const int before = errno;
  const std::uint64_t one = 1;
  if (owner.load() == getpid()) {
    [[maybe_unused]] const auto written = write(wake.load(), &one, sizeof one);
  }
  errno = before;
}

/// Writes the file completely or not at all, since the process may end at any time. The folder may
/// be writable by others, as /tmp is. So the file is made with an unpredictable name and readable
/// only by its owner, and then renamed, which replaces any file or symbolic link that has the final
/// name. On failure, returns false and sets errno.
bool write_whole(const std::string& path, std::string_view content) {
  const auto folder = path.substr(0, path.rfind('/') + 1);
  std::string fresh = folder + ".xylem_trace.XXXXXX";
  const int descriptor = mkostemp(fresh.data(), O_CLOEXEC);
  if (descriptor < 0) return false;
  bool is_written = true;
  while (is_written && !content.empty()) {
    const auto written = ::write(descriptor, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    is_written = written > 0;
    if (is_written) content.remove_prefix(static_cast<std::size_t>(written));
  }
  is_written = ::close(descriptor) == 0 && is_written;
  is_written = is_written && std::rename(fresh.c_str(), path.c_str()) == 0;
  const int error = errno;
  if (!is_written) ::unlink(fresh.c_str());
  errno = error;
  return is_written;
}

}  // namespace

Recorder& Recorder::get() {
  // Threads of groups that are never destroyed may still run after static objects are destroyed.
  static auto* const kRecorder = new Recorder;  // NOLINT(cppcoreguidelines-owning-memory)
  return *kRecorder;
}

Recorder::Recorder() {
  // In a forked child, delete the records: the child has made none of the recorded calls.
  pthread_atfork(lock, unlock,
                 []() XYLEM_LOCKING(release_capability(get().dumping_, get().mutex_)) {
                   get().entries_.assign(get().entries_.size(), Entry());
                   get().rank_.reset();
                   get().job_.clear();
                   unlock();
                 });
}

void Recorder::lock() {
  get().dumping_.lock();
  get().mutex_.lock();
}

void Recorder::unlock() {
  get().mutex_.unlock();
  get().dumping_.unlock();
}

void Recorder::configure(std::size_t entries, std::string prefix) {
  constexpr std::size_t kMost = 1'000'000;
  const Lock lock(mutex_);
  prefix_ = std::move(prefix);
  entries = std::min(entries, kMost);
  if (entries != entries_.size()) entries_ = std::vector<Entry>(entries);
}

void Recorder::set_place(std::uint64_t rank, const std::string& job) {
  const Lock lock(mutex_);
  rank_ = rank;
  job_ = job;
}

void Recorder::Shape::take(const Tensors& tensors) {
  is_there = !tensors.empty() && tensors.front().defined();
  if (!is_there) return;
  const at::IntArrayRef all = tensors.front().sizes();
  dimensions = static_cast<std::uint8_t>(std::min(all.size(), kMostDimensions));
  std::copy_n(all.begin(), dimensions, sizes.begin());
  type = tensors.front().scalar_type();
}

c10::IValue Recorder::Shape::dimensions_list() const {
  if (!is_there) return new_list();
  std::vector<c10::IValue> all;
  all.reserve(dimensions);
  for (std::uint8_t i = 0; i < dimensions; ++i) all.emplace_back(sizes[i]);
  return list_of({list_of(all)});
}

c10::IValue Recorder::Shape::types_list() const {
  if (!is_there) return new_list();
  return list_of({c10::IValue(std::string(c10::toString(type)))});
}

// The names are looked up at once, so that records can be written later without Python's lock.
std::vector<Recorder::Frame> Recorder::python_stack() noexcept {
  std::vector<Frame> frames;
  try {
    const auto captured = torch::CapturedTraceback::gather(true, false, false);
    const auto symbolized = torch::symbolize({captured.get()});
    for (const auto index : symbolized.tracebacks.front()) {
      const auto& frame = symbolized.all_frames[index];
      frames.push_back({frame.funcname, frame.filename, static_cast<std::int64_t>(frame.lineno)});
    }
  } catch (const std::exception&) {
    frames.clear();  // A thread that runs no Python code has no Python stack.
  }
  return frames;
}

std::uint64_t Recorder::begin(const std::shared_ptr<const GroupLabel>& group,
                              const CallRecord& call,
                              const Tensors& inputs,
                              const Tensors& outputs) noexcept {
  const std::int64_t now = now_ns();
  std::vector<Frame> frames;
  if (has_stacks_.load(std::memory_order_relaxed)) frames = python_stack();
  const Lock lock(mutex_);
  if (entries_.empty()) return 0;
  Entry& entry = entries_[next_ % entries_.size()];
  entry.id = next_++;
  entry.frames = std::move(frames);
  entry.group = group;
  entry.call = call;
  entry.input.take(inputs);
  entry.output.take(outputs);
  entry.begun_ns = now;
  entry.ended_ns = 0;
  entry.state = State::started;
  return entry.id;
}

void Recorder::end(std::uint64_t id, bool well) noexcept {
  if (id == 0) return;
  const std::int64_t now = now_ns();
  const Lock lock(mutex_);
  if (entries_.empty()) return;
  Entry& entry = entries_[id % entries_.size()];
  if (entry.id != id || entry.state != State::started) return;
  entry.ended_ns = now;
  entry.state = well ? State::completed : State::failed;
}

std::string Recorder::pickled() const {
  std::vector<Entry> entries;
  {
    const Lock lock(mutex_);
    std::ranges::copy_if(entries_, std::back_inserter(entries),
                         [](const Entry& entry) { return entry.id != 0; });
  }
  std::ranges::sort(entries, {}, &Entry::id);

  auto records = new_list();
  Groups groups;
  // Groups are numbered in the order of their first calls.
  std::map<std::string, std::int64_t> numbers;
  for (const Entry& entry : entries) {
    groups[entry.group->name] = entry.group;
    const auto known = static_cast<std::int64_t>(numbers.size());
    records.push_back(recorded(entry, numbers.try_emplace(entry.group->name, known).first->second));
  }
  auto all = new_dict();
  all.insert("version", kFormat);
  all.insert("comm_lib_version", "xylem " + std::string(xylem::version()));
  all.insert("pg_config", described(groups));
  all.insert("entries", records);
  return c10d::pickle_str(all);
}

c10::IValue Recorder::recorded(const Entry& entry, std::int64_t group_number) {
  const auto& [title, type, sequence, messages, rank, peer, timeout] = entry.call;
  std::string name = title;
  if (c10d::isP2POp(type)) {
    const bool is_send = type == c10d::OpType::SEND;
    const std::string other = peer < 0 ? "?" : std::to_string(peer);
    name = c10::str(is_send ? "xylem:send " : "xylem:recv ", rank, is_send ? "->" : "<-", other);
  }
  const auto number = [](std::uint64_t value) { return static_cast<std::int64_t>(value); };
  auto record = new_dict();
  record.insert("record_id", number(entry.id));
  record.insert("pg_id", group_number);
  record.insert("process_group",
                c10::ivalue::Tuple::create({entry.group->name, entry.group->description}));
  record.insert("collective_seq_id", number(sequence));
  record.insert("p2p_seq_id", number(messages));
  record.insert("op_id", number(entry.id));
  record.insert("profiling_name", name);
  record.insert("is_p2p", c10d::isP2POp(type));
  record.insert("input_sizes", entry.input.dimensions_list());
  record.insert("input_dtypes", entry.input.types_list());
  record.insert("output_sizes", entry.output.dimensions_list());
  record.insert("output_dtypes", entry.output.types_list());
  record.insert("timeout_ms", static_cast<std::int64_t>(timeout.count()));
  record.insert("time_created_ns", entry.begun_ns);
  record.insert("time_discovered_started_ns", entry.begun_ns);
  const bool has_ended = entry.state != State::started;
  record.insert("time_discovered_completed_ns",
                has_ended ? c10::IValue(entry.ended_ns) : c10::IValue());
  if (has_ended) {
    record.insert("duration_ms", static_cast<double>(entry.ended_ns - entry.begun_ns) / 1e6);
  }
  record.insert("state", entry.state == State::started     ? "started"
                         : entry.state == State::completed ? "completed"
                                                           : "failed");
  record.insert("retired", has_ended);
  std::vector<c10::IValue> frames;
  for (const Frame& frame : entry.frames) {
    auto one = new_dict();
    one.insert("name", frame.name);
    one.insert("filename", frame.file);
    one.insert("line", frame.line);
    frames.emplace_back(one);
  }
  record.insert("frames", list_of(frames));
  return record;
}

std::string Recorder::dump() {
  const Lock one_at_a_time(dumping_);
  constexpr std::size_t kDigits = 16;  // Of the job's name, which has 32.
  std::string path;
  bool has_folder = true;
  {
    const Lock lock(mutex_);
    path = prefix_;
    if (path.empty()) {
      if (job_.empty()) job_ = random_text();
      path = "/tmp/xylem_trace_" + job_.substr(0, kDigits);
      has_folder = ::mkdir(path.c_str(), S_IRWXU) == 0 || errno == EEXIST;
      path += "/rank_";
    }
    path += rank_ ? std::to_string(*rank_) : std::to_string(getpid());
  }
  if (!has_folder || !write_whole(path, pickled())) {
    check(failure(Code::exhausted,
                  c10::str("the record of calls could not be written to ", path, ": ",
                           std::strerror(errno), "; set TORCH_FR_DUMP_TEMP_FILE")));
  }
  return path;
}

void Recorder::dump_once() noexcept {
  std::call_once(dumped_, [this] {
    try {
      TORCH_WARN("xylem: the last calls are in ", dump());
    } catch (const std::exception& error) {
      TORCH_WARN(error.what());
    }
  });
}

void Recorder::dump_soon() noexcept {
  try {
    std::thread([this] { dump_once(); }).detach();
  } catch (const std::system_error& error) {
    TORCH_WARN("xylem: no thread to write the record of calls: ", error.what());
  }
}

void Recorder::dump_on_failure_of(const Communicator& group) {
  group.on_failure([](const Status& why) {
    if (is_worth_a_record(why)) get().dump_soon();
  });
}

void Recorder::dump_on_signal(int number) {
  static Mutex installing;
  const Lock lock(installing);
  if (owner.load() != getpid()) {
    const int descriptor = eventfd(0, EFD_CLOEXEC);
    if (descriptor < 0) {
      check(failure(Code::exhausted, c10::str("no eventfd: ", std::strerror(errno))));
    }
    wake = descriptor;
    owner = getpid();
    std::thread([this, descriptor] {
      std::uint64_t asked = 0;
      while (read(descriptor, &asked, sizeof asked) == sizeof asked || errno == EINTR) {
        try {
          TORCH_WARN("xylem: the last calls are in ", dump());
        } catch (const std::exception& error) {
          TORCH_WARN(error.what());
        }
      }
    }).detach();
  }
  struct sigaction action {};
  action.sa_handler = ask_for_dump;
  action.sa_flags = SA_RESTART;
  if (sigaction(number, &action, nullptr) != 0) {
    refuse(c10::str("dump_on_signal: signal ", number, ": ", std::strerror(errno)));
  }
}

}  // namespace xylem::pytorch
