// SPDX-License-Identifier: Apache-2.0
#include "tuning_file.h"

#include "named_file.h"
#include "xylem/base/file.h"
#include "xylem/base/hash.h"
#include "xylem/base/unique_fd.h"
#include "xylem/topology/discover.h"
#include "xylem/topology/fingerprint.h"
#include "xylem/topology/topology.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

namespace xylem::runtime {
namespace {

using collectives::CostModel;
using collectives::LinkCost;
using nlohmann::json;

constexpr int kSchema = 1;

std::size_t hosts_of(const CostModel& model) {
  return model.host.empty() ? 1 : std::size_t{std::ranges::max(model.host)} + 1;
}

Result<std::string> hardware_key(const Tuning& tuning) {
  const CostModel& model = tuning.model;
  // discover() must not initialize CUDA here: CUDA does not work in children that the application
  // forks afterwards.
  topology::DiscoverOptions options;
  options.cuda.clear();
  XYLEM_TRY(const auto machine, topology::discover(options));
  std::string key =
      fmt::format("{}/{}", topology::fingerprint(machine).to_string(), model.slice_bytes);
  // Ranks that share cores also share the bandwidth of these cores, so they get an entry of their
  // own.
  const auto ranks = static_cast<std::uint32_t>(std::ranges::count(model.host, 0U));
  const std::uint32_t cores = model.cores_of(0);
  if (cores > 0 && cores < ranks) key += fmt::format("/{} ranks on {} cores", ranks, cores);
  if (const std::size_t hosts = hosts_of(model); hosts > 1) {
    key += fmt::format("/{} hosts, ports {:016x}", hosts, hash_text(tuning.ports));
  }
  return key;
}

json to_json(const LinkCost& cost) {
  return {{"alpha_us", cost.alpha_us}, {"bandwidth_GBps", cost.bandwidth_GBps}};
}

/// Reads a size; null stands for kAnySize.
bool read(const json& value, std::optional<std::uint64_t>& size) {
  size = transport::kAnySize;
  if (value.is_null()) return true;
  if (!value.is_number_unsigned()) return false;
  size = value.get<std::uint64_t>();
  return *size > 0;
}

/// Reads a constant of the model. False if the file is damaged: the number is missing, or outside
/// of the range that estimates can use.
bool read(const json& object, const char* key, double& value) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return false;
  value = found->get<double>();
  constexpr double kLeast = 1e-9;
  constexpr double kMost = 1e9;
  return value > kLeast && value < kMost;
}

bool read(const json& object, const char* key, LinkCost& cost) {
  const auto found = object.find(key);
  return found != object.end() && read(*found, "alpha_us", cost.alpha_us) &&
         read(*found, "bandwidth_GBps", cost.bandwidth_GBps);
}

json to_json(const NetworkSample& sample) {
  return {{"half_trip_us", sample.half_trip_us},
          {"send_us", sample.send_us},
          {"message_us", sample.message_us},
          {"flow_GBps", sample.flow_GBps},
          {"host_GBps", sample.host_GBps}};
}

/// Reads a number that is 0 if it has not been measured.
bool read_measured(const json& value, double& number) {
  constexpr double kMost = 1e9;
  if (!value.is_number()) return false;
  number = value.get<double>();
  constexpr double kLeast = 1e-9;
  return number == 0 || (number > kLeast && number < kMost);
}

/// Reads the samples of this number of hosts.
bool read(const json& value, std::size_t hosts, std::vector<NetworkSample>& samples) {
  if (!value.is_array() || value.size() != hosts) return false;
  samples.resize(hosts);
  for (std::size_t host = 0; host < hosts; ++host) {
    const json& entry = value[host];
    NetworkSample& sample = samples[host];
    if (!entry.is_object()) return false;
    const json rates = entry.value("host_GBps", json());
    if (!rates.is_array() || rates.size() != sample.host_GBps.size()) return false;
    for (std::size_t round = 0; round < rates.size(); ++round) {
      if (!read_measured(rates[round], sample.host_GBps[round])) return false;
    }
    if (!read_measured(entry.value("half_trip_us", json()), sample.half_trip_us) ||
        !read_measured(entry.value("send_us", json()), sample.send_us) ||
        !read_measured(entry.value("message_us", json()), sample.message_us) ||
        !read_measured(entry.value("flow_GBps", json()), sample.flow_GBps)) {
      return false;
    }
  }
  return true;
}

bool is_tuning(const json& content) {
  if (!content.is_object()) return false;
  const auto schema = content.find("schema");
  const auto machines = content.find("machines");
  return schema != content.end() && schema->is_number_integer() && *schema == kSchema &&
         machines != content.end() && machines->is_object();
}

Result<json> parse(const std::string& path, Deadline deadline) {
  constexpr Bytes kMost{16 << 20};
  XYLEM_TRY(const auto text, read_named_file("XYLEM_TUNING", path, kMost, deadline));
  if (!text) return json{{"schema", kSchema}, {"machines", json::object()}};
  json content = json::parse(*text, nullptr, false);
  if (!is_tuning(content)) {
    return failure(
        Code::invalid_argument,
        fmt::format("XYLEM_TUNING={}: not a tuning file of schema {}; remove it, or name another",
                    path, kSchema));
  }
  return content;
}

/// Replaces a file: the old file stays until the new one is complete. Returns false and sets errno
/// on failure.
bool replace_file(const std::string& path, std::string_view text) {
  constexpr mode_t kByUmask = 0666;
  const std::string fresh = fmt::format("{}.{}", path, getpid());
  const WriteSignalsBlocked blocked;
  // In a directory that all users can write, another user may have made a file or a link of this
  // name. It is removed here; O_EXCL fails if it is made again.
  ::unlink(fresh.c_str());
  const UniqueFd fd(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kByUmask));
  if (!fd) return false;
  bool is_whole = true;
  while (is_whole && !text.empty()) {
    const ssize_t written = ::write(fd.get(), text.data(), text.size());
    is_whole = written >= 0 || errno == EINTR;
    if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
  }
  // fsync() is needed because a network file system may report a failed write only here.
  is_whole = is_whole && ::fsync(fd.get()) == 0 && ::rename(fresh.c_str(), path.c_str()) == 0;
  const int error = errno;
  if (!is_whole) ::unlink(fresh.c_str());
  errno = error;
  return is_whole;
}

}  // namespace

Result<std::optional<Tuning>> load_tuning(const std::string& path,
                                          const Tuning& tuning,
                                          Deadline deadline) {
  XYLEM_TRY(const auto content, parse(path, deadline));
  XYLEM_TRY(const auto key, hardware_key(tuning));
  const auto found = content["machines"].find(key);
  if (found == content["machines"].end()) return std::optional<Tuning>();
  Tuning loaded = tuning;
  CostModel& model = loaded.model;
  const auto damaged = [&] {
    return failure(
        Code::invalid_argument,
        fmt::format("XYLEM_TUNING={}: the entry of this machine ({}) is damaged; remove it", path,
                    key));
  };
  if (!read(*found, "local", model.local) ||
      !read(*found, "reduce_GBps", model.compute.reduce_GBps) ||
      !read(*found, "copy_GBps", model.compute.copy_GBps)) {
    return damaged();
  }
  // Files of earlier versions lack these. Then everything is measured again.
  if (!found->contains("pull_from") || !found->contains("network")) return std::optional<Tuning>();
  if (!read((*found)["pull_from"], loaded.pull_from) ||
      !read((*found)["network"], hosts_of(model), loaded.network)) {
    return damaged();
  }
  return std::optional<Tuning>(std::move(loaded));
}

Status save_tuning(const std::string& path, const Tuning& tuning, Deadline deadline) {
  const CostModel& model = tuning.model;
  const std::uint64_t pull_from = tuning.pull_from.value_or(transport::kAnySize);
  XYLEM_TRY(auto content, parse(path, deadline));
  json network = json::array();
  for (const NetworkSample& sample : tuning.network) network.push_back(to_json(sample));
  XYLEM_TRY(const auto key, hardware_key(tuning));
  // Each set of hosts has an entry of its own, so their number is limited.
  constexpr std::size_t kMostEntries = 256;
  if (content["machines"].size() >= kMostEntries) content["machines"] = json::object();
  content["machines"][key] = {
      {"local", to_json(model.local)},
      {"network", std::move(network)},
      {"reduce_GBps", model.compute.reduce_GBps},
      {"copy_GBps", model.compute.copy_GBps},
      {"pull_from", pull_from == transport::kAnySize ? json() : json(pull_from)}};
  if (replace_file(path, content.dump(2) + '\n')) return {};
  return failure(
      Code::invalid_argument,
      fmt::format("XYLEM_TUNING={}: cannot be written ({}); measured values are not kept", path,
                  write_error_text(errno)));
}

}  // namespace xylem::runtime
