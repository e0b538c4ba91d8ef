// SPDX-License-Identifier: Apache-2.0
#include "xylem/topology/gpu_memory.h"

#include "gpu_links.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

namespace xylem::topology {
namespace {

/// The memory bandwidth of a model by the manufacturer's data sheet.
struct DataSheet {
  std::string_view words;  ///< Words that the name of the GPU contains, in lower case.
  double gigabytes_per_second;
  std::string_view name;
};

/// The first entry whose words are all in the name of the GPU is used. The figures are from the
/// data sheets that NVIDIA publishes as PDF for each product, "memory bandwidth" or "GPU memory
/// bandwidth". The figures of B200 and B300 are an eighth of those of DGX B200 and DGX B300. The
/// figures of GeForce cards are from the architecture's white papers (GA102, AD102, RTX Blackwell).
constexpr std::array kDataSheets = std::to_array<DataSheet>({
    {"b300", 8000, "B300"},
    {"gb300", 8000, "GB300"},
    {"b200", 8000, "B200"},
    {"gb200", 8000, "GB200"},
    {"h200", 4800, "H200"},
    {"gh200 480gb", 4000, "GH200 with 96 GB of HBM3"},
    {"gh200", 4900, "GH200 with 144 GB of HBM3e"},
    {"h100 nvl", 3900, "H100 NVL"},
    {"h100 pcie", 2000, "H100 PCIe"},
    {"h100 hbm2e", 2000, "H100 PCIe"},
    {"h100", 3350, "H100 SXM"},
    {"a100 80gb pcie", 1935, "A100 80GB PCIe"},
    {"a100 80gb", 2039, "A100 80GB SXM"},
    {"a100", 1555, "A100 40GB"},
    {"a30", 933, "A30"},
    {"a40", 696, "A40"},
    {"a10", 600, "A10"},
    {"a10g", 600, "A10G"},
    {"a16", 200, "A16, each of four GPUs"},
    {"a2", 200, "A2"},
    {"l40s", 864, "L40S"},
    {"l40", 864, "L40"},
    {"l4", 300, "L4"},
    {"v100s", 1134, "V100S"},
    {"v100", 900, "V100"},
    {"t4", 320, "T4"},
    {"p100 12gb", 549, "P100 PCIe 12GB"},
    {"p100", 732, "P100"},
    {"pro 6000 blackwell server", 1597, "RTX PRO 6000 Blackwell Server Edition"},
    {"pro 6000 blackwell", 1792, "RTX PRO 6000 Blackwell Workstation Edition"},
    {"rtx 6000 ada", 960, "RTX 6000 Ada"},
    {"rtx 4000 ada", 360, "RTX 4000 Ada"},
    {"rtx a6000", 768, "RTX A6000"},
    {"rtx 5090", 1792, "GeForce RTX 5090"},
    {"rtx 4090", 1008, "GeForce RTX 4090"},
    {"rtx 3090", 936, "GeForce RTX 3090"},
});

/// For each compute capability, the slowest memory of a data centre GPU, by the same data sheets.
struct Architecture {
  std::string_view name;
  double gigabytes_per_second;
};
constexpr std::array kLeastOf = std::to_array<Architecture>({
    {"sm_60", 549},
    {"sm_70", 900},
    {"sm_75", 320},
    {"sm_80", 933},
    {"sm_86", 200},
    {"sm_89", 300},
    {"sm_90", 2000},
    {"sm_100", 8000},
    {"sm_103", 8000},
    {"sm_120", 1597},
});

/// For a GPU of which nothing is known, as in a one-line description. Such descriptions assume the
/// NVLinks of an H100, so this is the slowest memory of an H100 by the data sheets above.
constexpr double kAssumed = 2000;

/// The words of a name in lower case: "Tesla V100-SXM2-16GB" has tesla, v100, sxm2 and 16gb.
std::set<std::string> words_of(std::string_view name) {
  std::set<std::string> words;
  std::string word;
  for (const char c : name) {
    const auto letter = static_cast<unsigned char>(c);
    if (std::isalnum(letter) != 0) {
      word += static_cast<char>(std::tolower(letter));
    } else if (!word.empty()) {
      words.insert(std::exchange(word, {}));
    }
  }
  if (!word.empty()) words.insert(word);
  return words;
}

}  // namespace

KnownRate memory_rate(const Gpu& gpu) {
  if (gpu.memory_rate.bandwidth) {
    return {*gpu.memory_rate.bandwidth, gpu.memory_rate.origin == Origin::measured
                                            ? "measured"
                                            : "clock and bus width by its driver"};
  }
  const auto words = words_of(gpu.model.empty() ? gpu.pci.model : gpu.model);
  for (const DataSheet& sheet : kDataSheets) {
    const auto needed = words_of(sheet.words);
    if (std::ranges::includes(words, needed)) {
      return {GBps{sheet.gigabytes_per_second}, fmt::format("data sheet of {}", sheet.name)};
    }
  }
  const auto least = std::ranges::find(kLeastOf, gpu.architecture, &Architecture::name);
  if (least != kLeastOf.end()) {
    return {GBps{least->gigabytes_per_second},
            fmt::format("assumed: the least of {} by data sheets", gpu.architecture)};
  }
  return {GBps{kAssumed}, "assumed: the model of the GPU is unknown"};
}

std::optional<GBps> host_rate(const Topology& topology, std::uint32_t gpu) {
  // For each bridge, the number of GPUs below it.
  std::vector<std::uint32_t> below(topology.bridges().size(), 0);
  const auto for_each_bridge = [&](std::uint32_t index, auto&& visit) {
    auto at = topology.gpus()[index].pci.parent;
    while (at && at->kind == NodeKind::bridge) {
      visit(at->index);
      at = topology.bridges()[at->index].pci.parent;
    }
  };
  for (std::uint32_t i = 0; i < topology.gpus().size(); ++i) {
    for_each_bridge(i, [&](std::uint32_t bridge) { ++below[bridge]; });
  }
  std::optional<GBps> least = topology.gpus()[gpu].pci.uplink.bandwidth;
  for_each_bridge(gpu, [&](std::uint32_t bridge) {
    const auto whole = topology.bridges()[bridge].pci.uplink.bandwidth;
    if (!whole) return;
    const GBps share{whole->value / below[bridge]};
    least = least ? std::min(*least, share) : share;
  });
  return least;
}

}  // namespace xylem::topology
