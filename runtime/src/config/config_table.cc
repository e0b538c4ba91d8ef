// SPDX-License-Identifier: Apache-2.0
//
// The rows of the configuration table, and how each is parsed and shown.
#include "config_table.h"

#include "config_values.h"
#include "rendezvous.h"

#include <fmt/format.h>

#include <array>
#include <limits>

namespace xylem::runtime {
namespace {

constexpr std::uint32_t kMostRanks = 1U << 20;
constexpr std::array<std::string_view, 5> kTransports = {"auto", "shm", "tcp", "ucx-tcp",
                                                         "ucx-rdma"};
constexpr std::array<std::string_view, 3> kRequirements = {"shm", "tcp", "rdma"};
constexpr std::array<std::string_view, 3> kProtections = {"off", "auth", "encrypt"};
constexpr std::array<std::string_view, 4> kWaitModes = {"auto", "spin", "yield", "sleep"};

using MaybeText = std::optional<std::string>;

Status set_count(std::optional<std::uint32_t>& field,
                 std::string_view text,
                 std::uint32_t least,
                 std::uint32_t most) {
  XYLEM_TRY(const auto value, parse_whole(text, least, most));
  field = static_cast<std::uint32_t>(value);
  return {};
}
Status set_wait(std::chrono::nanoseconds& field, std::string_view text) {
  XYLEM_TRY(field, parse_wait(text));
  return {};
}
template <typename Check>
Status set_checked(std::string& field, std::string_view text, Check&& check) {
  XYLEM_TRY(check(text));
  field = text;
  return {};
}

std::string show_count(const std::optional<std::uint32_t>& field) {
  return field ? std::to_string(*field) : std::string();
}
MaybeText count_text(const std::optional<std::uint32_t>& option) {
  if (!option) return std::nullopt;
  return std::to_string(*option);
}
MaybeText duration_text(const std::optional<std::chrono::milliseconds>& option) {
  if (!option) return std::nullopt;
  return fmt::format("{}ms", option->count());
}

Status set_requirement(Config& config, std::string_view text) {
  XYLEM_TRY(const auto index, parse_word(text, kRequirements));
  config.require = static_cast<Requirement>(index + 1);  // The first is `none`.
  return {};
}

std::string show_requirement(const Config& config) {
  if (config.require == Requirement::none) return {};
  return std::string(kRequirements[static_cast<std::size_t>(config.require) - 1]);
}

Status set_slice(Bytes& slice, std::string_view text) {
  // With multiples of a cache line, no slice splits an element, and each slice starts on a cache
  // line.
  constexpr Bytes kGrain{64};
  constexpr Bytes kLargest{1U << 30};
  const auto size = parse_bytes(text);
  if (!size || *size < kGrain || *size > kLargest || size->value % kGrain.value != 0) {
    return failure(Code::invalid_argument, "it must be a multiple of 64 bytes, at most 1 GiB");
  }
  slice = *size;
  return {};
}

Status set_shared_memory(Config& config, std::string_view text) {
  constexpr Bytes kLargest{1ULL << 40};
  const auto size = parse_bytes(text);
  if (text != "auto" && (!size || size->value == 0 || *size > kLargest)) {
    return failure(Code::invalid_argument, "it must be auto or a size of at most 1 TiB");
  }
  config.shared_memory = text == "auto" ? Bytes{0} : *size;
  return {};
}

Status set_pull_from(Config& config, std::string_view text) {
  constexpr Bytes kSmallest{4096};
  const auto size = parse_bytes(text);
  if (text != "auto" && text != "never" && (!size || *size < kSmallest)) {
    return failure(Code::invalid_argument, "it must be auto, never or a size from 4 KiB on");
  }
  config.pull_from.reset();
  if (text == "never") config.pull_from = kNeverPull;
  if (size) config.pull_from = *size;
  return {};
}

std::string show_pull_from(const Config& config) {
  if (!config.pull_from) return "auto";
  return *config.pull_from == kNeverPull ? "never" : format_bytes(*config.pull_from);
}

Status set_tuning(Config& config, std::string_view text) {
  if (text != "measure" && text != "off" && text.find('/') == std::string_view::npos) {
    return failure(Code::invalid_argument,
                   "it must be measure, off, or the path of a cache file, with a /");
  }
  config.tuning = text;
  return {};
}

std::string show_log(const Config& config) {
  std::string text(name(config.log.level));
  if (!config.log.file.empty()) text += ",file=" + config.log.file;
  return text;
}

constexpr Setting kSettings[] = {
    {.name = "XYLEM_RANK",
     .field = "rank",
     .unit = "rank",
     .default_value = "",
     .example = "0",
     .sentence =
         "This process's rank. Set both this and XYLEM_SIZE, or neither if a launcher sets them.",
     .set = [](Config& c, std::string_view t) { return set_count(c.rank, t, 0, kMostRanks - 1); },
     .show = [](const Config& c) { return show_count(c.rank); },
     .from_options = [](const Options& o) { return count_text(o.rank); }},
    {.name = "XYLEM_SIZE",
     .field = "size",
     .unit = "ranks",
     .default_value = "",
     .example = "4",
     .sentence = "Number of ranks in the job.",
     .set = [](Config& c, std::string_view t) { return set_count(c.size, t, 1, kMostRanks); },
     .show = [](const Config& c) { return show_count(c.size); },
     .from_options = [](const Options& o) { return count_text(o.size); }},
    {.name = "XYLEM_RENDEZVOUS",
     .field = "rendezvous",
     .unit = "",
     .default_value = "",
     .example = "tcp://node1:29400",
     .sentence = "Where ranks meet: tcp://host:port, which rank 0 serves, or "
                 "file:///shared/directory, which "
                 "must exist.",
     .set =
         [](Config& c, std::string_view t) {
           return set_checked(c.rendezvous, t,
                              [](std::string_view text) { return parse_rendezvous(text); });
         },
     .show = [](const Config& c) { return c.rendezvous; },
     .from_options = [](const Options& o) { return o.rendezvous; }},
    {.name = "XYLEM_JOB",
     .field = "job",
     .unit = "",
     .default_value = "",
     .example = "training-17",
     .sentence =
         "Name of the job. All ranks of one start share it, and no other start has the same name.",
     .set = [](Config& c, std::string_view t) { return set_checked(c.job, t, check_token); },
     .show = [](const Config& c) { return c.job; },
     .from_options = [](const Options& o) { return o.job; }},
    {.name = "XYLEM_SECRET",
     .field = "secret",
     .unit = "",
     .default_value = "",
     .example = "6d1f0c9a5be84a7f",
     .sentence = "What a rank must prove to know before others accept it. If not set, ranks that "
                 "meet at a loopback address prove that they belong to the same user, and other "
                 "ranks that they know the job's identity, which is not secret.",
     .secret = true,
     .set = [](Config& c, std::string_view t) { return set_checked(c.secret, t, check_token); },
     .show = [](const Config& c) { return std::string(c.secret.empty() ? "" : "(set)"); },
     .from_options = [](const Options& o) { return o.secret; },
     .fallback = [](const Options& o) { return o.fallback_secret; }},
    {.name = "XYLEM_START_TIMEOUT",
     .field = "start_timeout",
     .unit = "duration",
     .default_value = "1 min",
     .example = "30s",
     .sentence = "How long ranks wait for each other at start.",
     .set = [](Config& c, std::string_view t) { return set_wait(c.start_timeout, t); },
     .show = [](const Config& c) { return format_duration(c.start_timeout); },
     .from_options = [](const Options& o) { return duration_text(o.start_timeout); }},
    {.name = "XYLEM_TIMEOUT",
     .field = "timeout",
     .unit = "duration",
     .default_value = "30 min",
     .example = "5min",
     .sentence = "How long an operation may take before it fails with timed_out.",
     .set = [](Config& c, std::string_view t) { return set_wait(c.timeout, t); },
     .show = [](const Config& c) { return format_duration(c.timeout); },
     .from_options = [](const Options& o) { return duration_text(o.timeout); }},
    {.name = "XYLEM_STALL_REPORT",
     .field = "stall_report",
     .unit = "duration",
     .default_value = "10 s",
     .example = "10s",
     .sentence = "How long an operation may make no progress before a warning is logged, once per "
                 "operation.",
     .set = [](Config& c, std::string_view t) { return set_wait(c.stall_report, t); },
     .show = [](const Config& c) { return format_duration(c.stall_report); }},
    {.name = "XYLEM_TRANSPORT",
     .field = "transport",
     .unit = "",
     .default_value = "auto",
     .example = "tcp",
     .sentence = "What carries payload: shm, tcp, ucx-rdma, ucx-tcp, or auto (shm within a host; "
                 "between hosts ucx-rdma if both have RDMA, else tcp).",
     .agreed = true,
     .set =
         [](Config& c, std::string_view t) {
           return set_checked(c.transport, t,
                              [](std::string_view text) { return parse_word(text, kTransports); });
         },
     .show = [](const Config& c) { return c.transport; },
     .from_options = [](const Options& o) { return o.transport; }},
    {.name = "XYLEM_REQUIRE",
     .field = "require",
     .unit = "",
     .default_value = "",
     .example = "rdma",
     .sentence =
         "What must carry payload; if it cannot, the start fails on all ranks: shm (between "
         "all ranks), tcp or rdma (between ranks on different hosts). If not set, ranks "
         "fall back to a slower transport.",
     .agreed = true,
     .set = set_requirement,
     .show = show_requirement,
     .from_options = [](const Options& o) { return o.require; }},
    {.name = "XYLEM_PROTECTION",
     .field = "protection",
     .unit = "",
     .default_value = "auth",
     .example = "encrypt",
     .sentence = "How payload over tcp is protected from third parties: auth (against changes), "
                 "encrypt (against reading, too) or off.",
     .agreed = true,
     .set = [](Config& c, std::string_view t) -> Status {
       XYLEM_TRY(const auto index, parse_word(t, kProtections));
       c.protection = static_cast<transport::Protection>(index);
       return {};
     },
     .show =
         [](const Config& c) {
           return std::string(kProtections[static_cast<std::size_t>(c.protection)]);
         }},
    {.name = "XYLEM_ALGORITHM",
     .field = "algorithm",
     .unit = "",
     .default_value = "",
     .example = "all_reduce=ring,all_gather=bruck",
     .sentence = "Algorithm for all operations, or for those named. If not set, the one with the "
                 "lowest predicted time.",
     .agreed = true,
     .set = [](Config& c,
               std::string_view t) { return set_checked(c.algorithm, t, check_algorithms); },
     .show = [](const Config& c) { return c.algorithm; },
     .from_options = [](const Options& o) { return o.algorithm; }},
    {.name = "XYLEM_SCHEDULES",
     .field = "schedules",
     .unit = "",
     .default_value = "",
     .example = "/etc/xylem/all_reduce.txt",
     .sentence =
         "File of at most 256 MiB with schedules for operations, which are proven at start and run "
         "in place of Xylem's own. Its contents must be the same on all ranks.",
     .set = [](Config& c, std::string_view t) -> Status {
       c.schedules = t;
       return {};
     },
     .show = [](const Config& c) { return c.schedules; }},
    {.name = "XYLEM_INTERFACES",
     .field = "interfaces",
     .unit = "",
     .default_value = "",
     .example = "^docker0,virbr0",
     .sentence = "Network interfaces to use or, if the list starts with ^, to avoid. If not set, "
                 "the one that leads to the rendezvous, and for payload also network cards like "
                 "it that join the same hosts.",
     .set = [](Config& c,
               std::string_view t) { return set_checked(c.interfaces, t, check_device_list); },
     .show = [](const Config& c) { return c.interfaces; },
     .from_options = [](const Options& o) { return o.interfaces; }},
    {.name = "XYLEM_DEVICES",
     .field = "devices",
     .unit = "",
     .default_value = "",
     .example = "mlx5_0,mlx5_1",
     .sentence = "RDMA devices to use or, if the list starts with ^, to avoid. If not set, all of "
                 "them.",
     .set = [](Config& c,
               std::string_view t) { return set_checked(c.devices, t, check_device_list); },
     .show = [](const Config& c) { return c.devices; },
     .from_options = [](const Options& o) { return o.devices; }},
    {.name = "XYLEM_MACHINE",
     .field = "machine",
     .unit = "",
     .default_value = "",
     .example = "node17",
     .sentence =
         "Name of the machine on which this rank runs: ranks that state the same name share "
         "its cores. If not set, the ranks under one operating system kernel do, also those "
         "in different containers.",
     .set = [](Config& c, std::string_view t) { return set_checked(c.machine, t, check_token); },
     .show = [](const Config& c) { return c.machine; }},
    {.name = "XYLEM_SLICE",
     .field = "slice",
     .unit = "bytes",
     .default_value = "256 KiB",
     .example = "256K",
     .sentence = "Size of the slices in which a chunk is pipelined. Within a host, a slice is at "
                 "most a slot of shared memory, 64 KiB.",
     .agreed = true,
     .set = [](Config& c, std::string_view t) { return set_slice(c.slice, t); },
     .show = [](const Config& c) { return format_bytes(c.slice); }},
    {.name = "XYLEM_DEVICE_SLICE",
     .field = "device_slice",
     .unit = "bytes",
     .default_value = "4 MiB",
     .example = "1M",
     .sentence = "Size of the slices of collectives on device memory, if the communicator is bound "
                 "to devices, and for all groups of PyTorch. At most 16 MiB are in flight to or "
                 "from one peer on one channel, but at least two slices.",
     .agreed = true,
     .set = [](Config& c, std::string_view t) { return set_slice(c.device_slice, t); },
     .show = [](const Config& c) { return format_bytes(c.device_slice); }},
    {.name = "XYLEM_WINDOW",
     .field = "window",
     .unit = "slices",
     .default_value = "8",
     .example = "8",
     .sentence = "Slices in flight to or from one peer on one channel, 1 to 1024.",
     .set = [](Config& c, std::string_view t) -> Status {
       constexpr std::uint64_t kWidest = 1024;
       XYLEM_TRY(const auto window, parse_whole(t, 1, kWidest));
       c.window = static_cast<std::uint32_t>(window);
       return {};
     },
     .show = [](const Config& c) { return std::to_string(c.window); }},
    {.name = "XYLEM_SHARED_MEMORY",
     .field = "shared_memory",
     .unit = "bytes",
     .default_value = "auto",
     .example = "4M",
     .sentence = "Memory that each rank shares with the other ranks of its host. auto: 2 MiB, or "
                 "more if a host has too many ranks for that.",
     .agreed = true,
     .set = set_shared_memory,
     .show =
         [](const Config& c) {
           return c.shared_memory.value == 0 ? "auto" : format_bytes(c.shared_memory);
         }},
    {.name = "XYLEM_PULL_FROM",
     .field = "pull_from",
     .unit = "bytes",
     .default_value = "auto",
     .example = "64K",
     .sentence = "Size from which the receiver copies a message within a host directly out of the "
                 "sender's process, where the system allows it: auto (where measured to be "
                 "quicker), never, or a size.",
     .agreed = true,
     .set = set_pull_from,
     .show = show_pull_from},
    {.name = "XYLEM_WAIT",
     .field = "wait",
     .unit = "",
     .default_value = "auto",
     .example = "yield",
     .sentence = "How a thread waits: auto, spin, yield or sleep. auto spins only if each local "
                 "rank has a core and spinning proves to be quicker, and sleeps while other "
                 "programs compute on the cores.",
     .set = [](Config& c, std::string_view t) -> Status {
       XYLEM_TRY(const auto index, parse_word(t, kWaitModes));
       c.wait = static_cast<WaitMode>(index);
       return {};
     },
     .show =
         [](const Config& c) { return std::string(kWaitModes[static_cast<std::size_t>(c.wait)]); }},
    {.name = "XYLEM_PROGRESS_THREAD",
     .field = "progress_thread",
     .unit = "",
     .default_value = "on",
     .example = "off",
     .sentence = "Whether a thread of Xylem drives pending operations while no thread of the user "
                 "does: on or off.",
     .set = [](Config& c, std::string_view t) -> Status {
       XYLEM_TRY(c.progress_thread, parse_switch(t));
       return {};
     },
     .show = [](const Config& c) { return std::string(c.progress_thread ? "on" : "off"); }},
    {.name = "XYLEM_TUNING",
     .field = "tuning",
     .unit = "",
     .default_value = "measure",
     .example = "/var/cache/xylem/tuning.json",
     .sentence =
         "Where the constants of the cost model come from: measure (measured at each "
         "start, in about 0.35 s), off (fixed values; on all ranks, or on none), or the path "
         "of a file of at most 16 MiB that keeps measured values.",
     .set = set_tuning,
     .show = [](const Config& c) { return c.tuning; }},
    {.name = "XYLEM_LOG",
     .field = "log",
     .unit = "",
     .default_value = "warn",
     .example = "info,file=/tmp/xylem.%r.log",
     .sentence =
         "Log level (off, error, warn, info, debug or trace). Append ,file=PATH to log to "
         "a file; in PATH, %r is the rank, %h the host and %p the process. If the file accepts "
         "no more data, such as a FIFO without a reader, lines are dropped.",
     .set = [](Config& c, std::string_view t) -> Status {
       XYLEM_TRY(c.log, parse_log_options(t));
       return {};
     },
     .show = show_log,
     .from_options = [](const Options& o) { return o.log; }},
};

}  // namespace

std::span<const Setting> settings() noexcept { return kSettings; }

}  // namespace xylem::runtime
