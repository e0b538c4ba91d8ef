// SPDX-License-Identifier: Apache-2.0
#include "picture/layout.h"

#include "words.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>

namespace xylem::topology::picture {
namespace {

constexpr double kMargin = 24;
constexpr double kTitle = 64;   ///< Height of the title.
constexpr double kHeader = 22;  ///< Height of a box's title.
constexpr double kPad = 10;     ///< Space between a box and its contents.
constexpr double kGap = 10;     ///< Space between cards, and between boxes.
constexpr double kCard = 104;   ///< Width of a card.
constexpr double kCards = 92;   ///< Height of the row of cards.
/// The sizes of the fonts of names and titles, and of the lines below the name of a card.
constexpr double kFont = 11, kSmallFont = 10;
constexpr double kFooter = 76;  ///< Height of the legend and the line on rings.
constexpr double kSwitchBar = 30;
constexpr double kWidest = 1250;  ///< A wider host gets two rows.
/// The widths of the characters from ' ' to '~' in thousandths of the size of the font, in
/// Helvetica and in fonts that replace it (Arial, Liberation Sans).
constexpr std::array<std::uint16_t, 95> kWidths{
    278,  278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278,  // ' ' to /
    556,  556, 556, 556, 556, 556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556,  // 0 to ?
    1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833, 722, 778,  // @ to O
    667,  778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556,  // P to _
    333,  556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556,  // ` to o
    556,  556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584};      // p to ~
constexpr std::size_t kStacked = 4;  ///< The largest number of cards in a stack.

bool is_within_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U; }

/// The width of UTF-8 text in bold letters of a font, which are a little wider than others.
double width_of(std::string_view text, double font) {
  constexpr double kOther = 1000, kBold = 1.07;
  double width = 0;
  for (const char letter : text) {
    if (is_within_character(letter)) continue;
    width +=
        letter >= ' ' && letter <= '~' ? kWidths[static_cast<std::size_t>(letter - ' ')] : kOther;
  }
  return width * kBold * font / 1000;
}

/// `text`, shortened so that it fits into `width`.
std::string fitted(const std::string& text, double width, double font = kFont) {
  if (width_of(text, font) <= width) return text;
  std::size_t end = text.size();
  do {
    --end;
    while (end > 0 && is_within_character(text[end])) --end;
  } while (end > 0 && width_of(std::string_view(text).substr(0, end), font) + font > width);
  return text.substr(0, end) + "…";
}

/// A line of a card below its name.
std::string small_line(const std::string& text) { return fitted(text, kCard - 12, kSmallFont); }

/// The model without its maker's name; "A100 SXM4 40GB" for "GA100 [A100 SXM4 40GB]".
std::string short_model(std::string model) {
  const auto open = model.find('['), close = model.rfind(']');
  if (open != std::string::npos && close != std::string::npos && close > open + 1) {
    model = model.substr(open + 1, close - open - 1);
  }
  for (const std::string_view maker : {"NVIDIA ", "AMD ", "Tesla "}) {
    if (model.starts_with(maker)) model.erase(0, maker.size());
  }
  return model;
}

std::string rate_text(const Nic& nic) {
  for (const Port& port : nic.ports) {
    if (port.state == PortState::down) return "down";
    if (port.rate) return in_gigabits(*port.rate);
  }
  return {};
}

std::string pcie_line(const Rate& uplink) {
  const auto generation = uplink.speed ? pcie_generation(*uplink.speed) : std::nullopt;
  if (generation && uplink.width) return fmt::format("PCIe {} x{}", *generation, *uplink.width);
  return uplink.bandwidth ? fmt::format("PCIe {}", format_bandwidth(*uplink.bandwidth)) : "";
}

std::string subtitle_of(const Topology& topology) {
  const Machine& machine = topology.machine();
  std::string subtitle;
  const auto add = [&](const std::string& part) {
    if (!part.empty()) subtitle += (subtitle.empty() ? "" : " · ") + part;
  };
  const auto counted = [](std::size_t count, std::string_view one) {
    return count == 0 ? std::string() : fmt::format("{} {}{}", count, one, count == 1 ? "" : "s");
  };
  if (!machine.host.empty()) add(machine.product);
  add(machine.architecture);
  add(counted(topology.packages().size(), "package"));
  add(counted(topology.numa_nodes().size(), "NUMA node"));
  add(counted(topology.gpus().size(), "GPU"));
  add(counted(topology.nics().size(), "NIC"));
  return subtitle;
}

class Layout {
 public:
  Layout(const Topology& topology, const Story& story)
      : topology_(topology), story_(story), numbers_(nic_numbers(topology)) {
    picture_.gpus.resize(topology.gpus().size());
    picture_.nics.resize(topology.nics().size());
  }

  Picture run() {
    const Place host = places_of(topology_);
    for (const Place& place : host.children) depth_ = std::max(depth_, depth_of(place));
    picture_.title_bottom = kMargin + kTitle;
    cards_y_ = picture_.title_bottom + depth_ * (kHeader + kPad / 2) + kPad / 2;
    double x = kMargin;
    for (const Place& place : host.children) {
      if (!is_seen(place)) continue;
      x = box(place, x, 0) + kGap;
    }
    picture_.lane_top = cards_y_ + kCards + depth_ * kPad;
    const double end = fold(x);
    picture_.width = std::max(end - kGap, text_width()) + kMargin;
    place_links();
    return std::move(picture_);
  }

 private:
  static bool is_box(const Place& place) {
    return !place.node || place.node->kind == NodeKind::package ||
           place.node->kind == NodeKind::numa_node || place.children.size() > 1;
  }

  /// Whether the place is drawn. NVSwitches on the PCIe bus are not drawn.
  static bool is_seen(const Place& place) {
    if (!place.node) return std::ranges::any_of(place.children, is_seen);
    switch (place.node->kind) {
      case NodeKind::nvswitch: return false;
      case NodeKind::bridge:
      case NodeKind::host_bridge: return std::ranges::any_of(place.children, is_seen);
      default: return true;
    }
  }

  /// The largest number of nested boxes in `place`, including its own box.
  static int depth_of(const Place& place) {
    int below = 0;
    for (const Place& child : place.children) below = std::max(below, depth_of(child));
    return below + (is_box(place) ? 1 : 0);
  }

  /// Lays out a box and its contents from `x` on, and returns its right edge.
  double box(const Place& place, double x, int level) {
    const std::size_t index = picture_.boxes.size();
    picture_.boxes.push_back({{}, kind_of(place), title_of(place), uplink_of(place)});
    double at = x + kPad;
    if (place.node && place.node->kind == NodeKind::numa_node) {
      at = cpus(topology_.numa_nodes()[place.node->index], at) + kGap;
    }
    std::vector<NodeRef> devices;
    std::vector<const Place*> boxes;
    for (const Place& child : place.children) {
      if (is_seen(child)) collect(child, devices, boxes);
    }
    at = columns(devices, at);
    for (const Place* child : boxes) at = box(*child, at, level + 1) + kGap;
    Box& made = picture_.boxes[index];
    const double title = width_of(made.title, kFont) + 2 * kPad;
    const double right = std::max(at - kGap + kPad, x + std::min(title, 2.6 * kCard));
    made.title = fitted(made.title, right - x - 2 * kPad);
    const double y = picture_.title_bottom + level * (kHeader + kPad / 2);
    made.rect = {x, y, right - x, cards_y_ + kCards + (depth_ - level) * kPad - y};
    return right;
  }

  /// Finds the devices and boxes to draw. A host bridge with a single device gets no box.
  static void collect(const Place& place,
                      std::vector<NodeRef>& devices,
                      std::vector<const Place*>& boxes) {
    if (is_box(place)) {
      boxes.push_back(&place);
    } else if (place.children.size() == 1) {
      collect(place.children.front(), devices, boxes);
    } else if (place.node) {
      devices.push_back(*place.node);
    }
  }

  BoxKind kind_of(const Place& place) const {
    if (!place.node) return BoxKind::unknown;
    switch (place.node->kind) {
      case NodeKind::package: return BoxKind::package;
      case NodeKind::numa_node: return BoxKind::numa_node;
      case NodeKind::host_bridge: return BoxKind::host_bridge;
      default: return BoxKind::pcie_switch;
    }
  }

  std::string title_of(const Place& place) const {
    if (!place.node) return "place unknown";
    const std::uint32_t index = place.node->index;
    switch (place.node->kind) {
      case NodeKind::package: {
        const Package& package = topology_.packages()[index];
        return fmt::format("package {}{}{}", package.os_index,
                           package.cpu_model.empty() ? "" : " · ", package.cpu_model);
      }
      case NodeKind::numa_node:
        return fmt::format("NUMA node {}", topology_.numa_nodes()[index].os_index);
      case NodeKind::host_bridge: {
        const HostBridge& bridge = topology_.host_bridges()[index];
        if (bridge.implied) return "host bridges";
        return fmt::format("host bridge {:04x}:{:02x}", bridge.domain, bridge.first_bus);
      }
      case NodeKind::bridge: {
        const PciDevice& pci = topology_.bridges()[index].pci;
        return "switch " + pci.address.to_string();
      }
      default: return place.node->to_string();
    }
  }

  std::optional<GBps> uplink_of(const Place& place) const {
    if (!place.node || place.node->kind != NodeKind::bridge) return std::nullopt;
    return topology_.bridges()[place.node->index].pci.uplink.bandwidth;
  }

  double cpus(const NumaNode& node, double x) {
    Card card;
    card.rect = {x, cards_y_, kCard, kCards};
    if (node.cpus.empty()) {
      card.lines.emplace_back("memory only");
    } else {
      card.lines.push_back(node.cores ? fmt::format("{} cores", *node.cores) : "CPUs");
      card.lines.push_back(
          small_line(fmt::format("{}{}", node.cores ? "CPUs " : "", node.cpus.to_string())));
    }
    if (auto memory = memory_text(node); !memory.empty()) card.lines.push_back(std::move(memory));
    picture_.cards.push_back(std::move(card));
    return x + kCard;
  }

  /// Lays out each GPU with the NICs that it uses beside it, then the other NICs.
  double columns(const std::vector<NodeRef>& devices, double x) {
    std::vector<std::uint32_t> nics;
    for (const NodeRef node : devices) {
      if (node.kind == NodeKind::nic) nics.push_back(node.index);
    }
    for (const NodeRef node : devices) {
      if (node.kind != NodeKind::gpu) continue;
      gpu(node.index, x);
      x += kCard + kGap;
      std::vector<std::uint32_t> own;
      for (const std::uint32_t nic : story_.assignment.gpus[node.index].nics) {
        const auto at = std::ranges::find(nics, nic);
        if (at == nics.end()) continue;
        own.push_back(nic);
        nics.erase(at);
      }
      x = stacks(own, x);
    }
    return stacks(nics, x);
  }

  double stacks(const std::vector<std::uint32_t>& nics, double x) {
    for (std::size_t first = 0; first < nics.size(); first += kStacked) {
      const std::size_t count = std::min(kStacked, nics.size() - first);
      constexpr double kSmallGap = 4;
      const auto number = static_cast<double>(count);
      const double height = (kCards - kSmallGap * (number - 1)) / number;
      for (std::size_t i = 0; i < count; ++i) {
        nic(nics[first + i],
            {x, cards_y_ + static_cast<double>(i) * (height + kSmallGap), kCard, height}, count);
      }
      x += kCard + kGap;
    }
    return x;
  }

  void gpu(std::uint32_t index, double x) {
    const Gpu& gpu = topology_.gpus()[index];
    Card card;
    card.kind = CardKind::gpu;
    card.rect = {x, cards_y_, kCard, kCards};
    card.uplink = gpu.pci.uplink.bandwidth;
    card.lines.push_back(fmt::format("GPU{}", index));
    card.lines.push_back(small_line(short_model(gpu.model)));
    card.lines.push_back(gpu.pci.address.to_string());
    card.lines.push_back(pcie_line(gpu.pci.uplink));
    const auto& nics = story_.assignment.gpus[index].nics;
    if (!nics.empty()) {
      card.rail = rail_of(nics.front());
      card.lines.push_back(small_line("→ " + topology_.nics()[nics.front()].name));
    }
    std::erase(card.lines, "");
    picture_.gpus[index] = picture_.cards.size();
    picture_.cards.push_back(std::move(card));
  }

  void nic(std::uint32_t index, const Rect& rect, std::size_t stacked) {
    const Nic& nic = topology_.nics()[index];
    Card card;
    card.rail = rail_of(index);
    card.kind = card.rail || (topology_.gpus().empty() && numbers_[index]) ? CardKind::nic
                                                                           : CardKind::idle_nic;
    card.rect = rect;
    if (stacked == 1) card.uplink = nic.pci.uplink.bandwidth;
    const std::string rate = rate_text(nic);
    if (stacked > 2) {
      card.lines.push_back(small_line(nic.name + (rate.empty() ? "" : " " + rate)));
    } else {
      card.lines.push_back(fitted(nic.name, kCard - 12));
      card.lines.push_back(rate);
    }
    if (stacked == 1) {
      const std::string address = nic.pci.address.to_string();
      card.lines.push_back(nic.is_virtual ? "not on PCI" : nic.name == address ? "" : address);
      card.lines.push_back(pcie_line(nic.pci.uplink));
      if (card.rail) card.lines.push_back(fmt::format("rail {}", *card.rail));
    }
    std::erase(card.lines, "");
    picture_.nics[index] = picture_.cards.size();
    picture_.cards.push_back(std::move(card));
  }

  std::optional<std::uint32_t> rail_of(std::uint32_t nic) const {
    const auto& rails = story_.assignment.rails;
    const auto at = std::ranges::find(rails, nic);
    if (at == rails.end()) return std::nullopt;
    return static_cast<std::uint32_t>(at - rails.begin());
  }

  /// The right end of the longest line of text above and below the picture.
  double text_width() {
    const Machine& machine = topology_.machine();
    picture_.title = machine.host.empty() ? machine.product : machine.host;
    if (picture_.title.empty()) picture_.title = "host";
    constexpr double kWidestText = 900, kTitleFont = 20, kLineFont = 12, kLegend = 560;
    picture_.title = fitted(picture_.title, kWidestText, kTitleFont);
    picture_.subtitle = fitted(subtitle_of(topology_), kWidestText, kLineFont);
    if (story_.rings.fabric != GpuFabric::none) {
      picture_.ring_line = ring_text(topology_, story_.rings, story_.bounds);
      if (story_.rings.channels.size() > 1) picture_.ring_line += " (one is drawn)";
    }
    constexpr double kSample = 30;
    return kMargin +
           std::max({width_of(picture_.title, kTitleFont), width_of(picture_.subtitle, kLineFont),
                     kSample + width_of(picture_.ring_line, kLineFont),
                     topology_.gpus().empty() ? 0.0 : kLegend});
  }

  bool is_gpu_beyond(double x) const {
    return std::ranges::any_of(picture_.gpus,
                               [&](std::size_t card) { return picture_.cards[card].rect.x >= x; });
  }

  /// The number of boxes in which a box that begins at `start` lies.
  std::size_t boxes_around(double start) const {
    return static_cast<std::size_t>(std::ranges::count_if(picture_.boxes, [&](const Box& box) {
      return box.rect.x < start && start < box.rect.right();
    }));
  }

  /// If the row ends too far to the right (at `end`), moves its second part into a second row. This
  /// part begins with a box. The boxes around this box are continued in the second row. Returns the
  /// right end of the longer row.
  double fold(double end) {
    if (end <= kWidest || picture_.gpus.size() < 2) return end;
    double split = 0, longest = end;
    for (const Box& box : picture_.boxes) {
      const double start = box.rect.x;
      const double around = kPad * static_cast<double>(boxes_around(start));
      const double longer = std::max(start + around, kMargin + end - start + around);
      if (start == kMargin || !is_gpu_beyond(start) || longer >= longest) continue;
      split = start;
      longest = longer;
    }
    if (split == 0) return end;
    split_ = split - kPad * static_cast<double>(boxes_around(split));
    cut(split);
    return longest;
  }

  /// Divides the boxes that extend over `split`.
  void cut(double split) {
    std::vector<Box> boxes;
    auto left = static_cast<double>(boxes_around(split));
    for (Box& box : picture_.boxes) {
      boxes.push_back(box);
      if (box.rect.x >= split || box.rect.right() <= split) continue;
      // The outermost box comes first.
      Box rest = box;
      rest.rect.x = split - kPad * left;
      rest.rect.width = box.rect.right() - rest.rect.x;
      rest.title = fitted(box.title + " (continued)", rest.rect.width - 2 * kPad);
      rest.uplink.reset();
      boxes.back().rect.width = split - kGap + kPad * left - box.rect.x;
      boxes.back().title = fitted(box.title, boxes.back().rect.width - 2 * kPad);
      boxes.push_back(std::move(rest));
      --left;
    }
    picture_.boxes = std::move(boxes);
  }

  bool is_folded() const { return !std::isinf(split_); }

  /// Moves a rectangle of the second row below the lane, upside down.
  void turn(Rect& rect) const {
    if (rect.x < split_) return;
    rect.x -= split_ - kMargin;
    rect.y = picture_.lane_bottom + picture_.lane_top - rect.bottom();
    rect.is_turned = true;
  }

  /// Places the lane for the links of GPUs, and everything below it.
  void place_links() {
    const auto gpus = static_cast<double>(topology_.gpus().size());
    const bool has_bar = std::ranges::any_of(
        topology_.links(), [](const Link& link) { return link.b.kind == NodeKind::nvswitch; });
    double height = gpus > 1 ? std::clamp(14 * gpus, 80.0, 170.0) : 0;
    if (is_folded()) height = std::max(1.6 * height, 170.0);
    if (has_bar) height += kSwitchBar;
    picture_.lane_bottom = picture_.lane_top + height;
    picture_.height = picture_.lane_bottom + kFooter;
    if (is_folded()) {
      for (Box& box : picture_.boxes) turn(box.rect);
      for (Card& card : picture_.cards) turn(card.rect);
      picture_.height += picture_.lane_top - picture_.title_bottom;
    }
    if (!has_bar) return;
    double left = picture_.width, right = 0;
    for (const std::size_t card : picture_.gpus) {
      left = std::min(left, picture_.cards[card].rect.x);
      right = std::max(right, picture_.cards[card].rect.right());
    }
    const double middle = (picture_.lane_top + picture_.lane_bottom) / 2;
    const double y = is_folded() ? middle - kSwitchBar / 2 : picture_.lane_bottom - kSwitchBar;
    picture_.nvswitch = Rect{left, y, right - left, kSwitchBar};
  }

  const Topology& topology_;
  const Story& story_;
  const std::vector<std::optional<std::uint32_t>> numbers_;
  Picture picture_;
  int depth_ = 0;  ///< Depth of nested boxes.
  double cards_y_ = 0;
  double split_ = std::numeric_limits<double>::infinity();
};

}  // namespace

Story story_of(const Topology& topology) {
  return {assign_nics(topology), plan_rings(topology), bandwidth_bounds(topology)};
}

Picture lay_out(const Topology& topology, const Story& story) {
  return Layout(topology, story).run();
}

}  // namespace xylem::topology::picture
