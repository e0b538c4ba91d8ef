// SPDX-License-Identifier: Apache-2.0
//
// Live discovery: hwloc describes the host as XML, which the reader for files reads. Then sysfs and
// NVIDIA's driver add facts.
#include "xylem/topology/discover.h"

#include "hwloc_xml/build.h"
#include "nvidia/facts.h"

#include <fmt/format.h>
#include <hwloc.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>

namespace xylem::topology {
namespace {

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const noexcept { hwloc_topology_destroy(topology); }
};
using HwlocTopology = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, DestroyTopology>;

Status refused(std::string_view step) {
  return failure(Code::unsupported,
                 fmt::format("hwloc cannot look at this machine: {} failed ({}); is /sys mounted?",
                             step, std::strerror(errno)));
}

/// The components of hwloc that are disabled. gl and opencl would open the X display and every
/// OpenCL driver to find GPUs that the PCI class already shows. pci uses libpciaccess, which leaks
/// its database of names at each discovery; sysfs has the same facts, and Xylem adds the names
/// itself.
constexpr const char* kComponentsOff[] = {"gl", "opencl", "pci"};

Result<HwlocTopology> load_hwloc_topology() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return refused("hwloc_topology_init");
  HwlocTopology topology(raw);
  for (const char* component : kComponentsOff) {
    // This fails if the installed hwloc lacks the component, which is no error.
    static_cast<void>(
        hwloc_topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, component));
  }
  // Describe the whole machine, not only the part that this process may use.
  if (hwloc_topology_set_flags(raw, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED) != 0) {
    return refused("hwloc_topology_set_flags");
  }
  // Without this filter hwloc drops all devices. "Important" keeps devices of common kinds, such as
  // network, storage and display.
  if (hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) != 0 ||
      hwloc_topology_set_cache_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE) != 0) {
    return refused("hwloc_topology_set_io_types_filter");
  }
  if (hwloc_topology_load(raw) != 0) return refused("hwloc_topology_load");
  if (hwloc_topology_is_thissystem(raw) == 0) {
    return failure(
        Code::unsupported,
        "the environment makes hwloc show another machine as this one: unset HWLOC_XMLFILE, "
        "HWLOC_SYNTHETIC and HWLOC_FSROOT, or set HWLOC_THISSYSTEM=1 if it is this one");
  }
  return topology;
}

Result<std::string> exported(const HwlocTopology& topology) {
  char* buffer = nullptr;
  int length = 0;
  if (hwloc_topology_export_xmlbuffer(topology.get(), &buffer, &length, 0) != 0) {
    return refused("hwloc_topology_export_xmlbuffer");
  }
  // `length` includes the terminating zero.
  std::string text(buffer, static_cast<std::size_t>(length > 0 ? length - 1 : 0));
  hwloc_free_xmlbuffer(topology.get(), buffer);
  return text;
}

}  // namespace

void add_nvidia_facts(Machine& machine, const DiscoverOptions& options) {
  Machine completed = machine;
  std::string trouble;
  const auto add = [&](const std::string& library, auto& ask) {
    if (library.empty()) return;
    const Result<nvidia::Facts> facts = ask(library);
    if (facts) return nvidia::add_facts(completed, *facts);
    trouble += fmt::format("{}{}", trouble.empty() ? "" : "; ", facts.status().message());
  };
  // NVML comes last, since it reports more: its facts replace those of the CUDA driver.
  add(options.cuda, nvidia::ask_cuda);
  add(options.nvml, nvidia::ask_nvml);
  const bool has_gpus = std::ranges::any_of(
      completed.gpus, [](const Gpu& gpu) { return gpu.pci.id.vendor == kVendorNvidia; });
  if (has_gpus) completed.nvidia.trouble = std::move(trouble);
  if (Topology::create(completed)) machine = std::move(completed);
}

Result<Topology> discover(const DiscoverOptions& options) {
  XYLEM_TRY(const auto found, load_hwloc_topology());
  XYLEM_TRY(const std::string text, exported(found));
  XYLEM_TRY(auto machine, hwloc_xml::read_machine(text, "hwloc"));
  add_sysfs_facts(machine, options.sysfs_root);
  add_nvidia_facts(machine, options);
  for (const std::string& path : options.pci_ids) {
    if (add_pci_names(machine, path)) break;
  }
  return Topology::create(std::move(machine));
}

}  // namespace xylem::topology
