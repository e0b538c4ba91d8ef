// SPDX-License-Identifier: Apache-2.0
//
// Draws the picture as SVG without scripts, fonts or references, so that it works in any page or
// slide.
#include "picture/layout.h"
#include "words.h"
#include "xylem/topology/writers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <string_view>

namespace xylem::topology {
namespace picture {
namespace {

/// One colour for each rail. If there are more rails, the colours are used again from the start.
constexpr std::array<std::string_view, 8> kRails{"#1f77b4", "#d1495b", "#2a9d8f", "#8e6bbf",
                                                 "#b07d2b", "#4c956c", "#c2559d", "#5c6f82"};
constexpr std::string_view kRing = "#e8710a";
constexpr std::string_view kFast = "#9aa7b4";

struct Paint {
  std::string_view fill, stroke;
};

Paint paint_of(BoxKind kind) {
  switch (kind) {
    case BoxKind::package: return {"#f3f5f8", "#c3ccd6"};
    case BoxKind::numa_node: return {"#fcfdfe", "#d3dbe4"};
    case BoxKind::host_bridge: return {"#faf7f0", "#e3d9bf"};
    case BoxKind::pcie_switch: return {"#f6f0e2", "#d9c798"};
    case BoxKind::unknown: break;
  }
  return {"#ffffff", "#b9b9b9"};
}

Paint paint_of(CardKind kind) {
  switch (kind) {
    case CardKind::cpus: return {"#eef0f3", "#cbd2da"};
    case CardKind::gpu: return {"#e3f3e6", "#4c9a5f"};
    case CardKind::nic: return {"#e5eefb", "#5b86c9"};
    case CardKind::idle_nic: break;
  }
  return {"#f6f6f6", "#c4c4c4"};
}

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '&': safe += "&amp;"; break;
      case '<': safe += "&lt;"; break;
      case '>': safe += "&gt;"; break;
      case '"': safe += "&quot;"; break;
      default: safe += c;
    }
  }
  return safe;
}

class Pen {
 public:
  Pen(const Topology& topology, const Story& story)
      : topology_(topology), story_(story), picture_(lay_out(topology, story)) {}

  std::string draw() {
    open();
    title();
    for (const Box& box : picture_.boxes) draw_box(box);
    if (picture_.nvswitch) switched_links(*picture_.nvswitch);
    direct_links();
    pairs();
    for (const Card& card : picture_.cards) draw_card(card);
    if (!story_.rings.channels.empty()) ring(story_.rings.channels.front());
    footer();
    put("</svg>\n");
    return std::move(svg_);
  }

 private:
  template <typename... Values>
  void put(fmt::format_string<Values...> format, Values&&... values) {
    fmt::format_to(std::back_inserter(svg_), format, std::forward<Values>(values)...);
  }

  void open() {
    put("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
        "width=\"{0:.0f}\" height=\"{1:.0f}\" font-family=\"Helvetica, Arial, sans-serif\" "
        "font-size=\"11\" fill=\"#2b3440\">\n",
        picture_.width, picture_.height);
    put("<defs><marker id=\"arrow\" viewBox=\"0 0 8 8\" refX=\"6\" refY=\"4\" markerWidth=\"5\" "
        "markerHeight=\"5\" orient=\"auto\"><path d=\"M0 0 8 4 0 8z\" "
        "fill=\"{}\"/></marker></defs>\n",
        kRing);
    put("<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n");
  }

  void text(double x, double y, std::string_view words, std::string_view attributes) {
    put("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, attributes, escaped(words));
  }

  void rect(const Rect& at, double radius, Paint paint, std::string_view attributes = "") {
    put("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"{:.0f}\" "
        "fill=\"{}\" stroke=\"{}\" {}/>\n",
        at.x, at.y, at.width, at.height, radius, paint.fill, paint.stroke, attributes);
  }

  void line(double x1, double y1, double x2, double y2, std::string_view colour, double width) {
    put("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" "
        "stroke-width=\"{:.1f}\" stroke-linecap=\"round\"/>\n",
        x1, y1, x2, y2, colour, width);
  }

  void title() {
    constexpr double kLeft = 24;
    text(kLeft, kLeft + 18, picture_.title, R"(font-size="20" font-weight="600")");
    text(kLeft, kLeft + 40, picture_.subtitle, R"(font-size="12" fill="#5d6b7a")");
  }

  void draw_box(const Box& box) {
    const bool is_unknown = box.kind == BoxKind::unknown;
    rect(box.rect, 8, paint_of(box.kind), is_unknown ? R"(stroke-dasharray="5 4")" : "");
    constexpr double kInset = 10;
    text(box.rect.x + kInset, box.rect.is_turned ? box.rect.bottom() - 8 : box.rect.y + 15,
         box.title, box.kind == BoxKind::package ? R"(font-weight="600")" : R"(fill="#5d6b7a")");
    if (box.uplink) plug(box.rect, *box.uplink);
  }

  /// The PCIe link of a box or card, drawn wider for more bandwidth.
  void plug(const Rect& at, GBps bandwidth) {
    const double width = std::clamp(8 + bandwidth.value * 0.6, 10.0, at.width * 0.8);
    put("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"4\" rx=\"2\" "
        "fill=\"#8b97a5\"><title>PCIe {}</title></rect>\n",
        at.center() - width / 2, (at.is_turned ? at.bottom() : at.y) - 2, width,
        format_bandwidth(bandwidth));
  }

  void draw_card(const Card& card) {
    rect(card.rect, 5, paint_of(card.kind));
    if (card.rail) {
      put("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"5\" height=\"{:.1f}\" rx=\"2\" "
          "fill=\"{}\"/>\n",
          card.rect.x, card.rect.y, card.rect.height, colour_of(*card.rail));
    }
    if (card.uplink) plug(card.rect, *card.uplink);
    const bool is_small = card.rect.height < 30;
    const double step = 15;
    double y = is_small ? card.rect.y + card.rect.height / 2 + 4 : card.rect.y + 18;
    for (std::size_t i = 0; i < card.lines.size(); ++i) {
      if (y > card.rect.bottom() - 3) break;
      text(card.rect.x + 9, y, card.lines[i],
           i == 0 ? (is_small ? R"(font-size="10")" : R"(font-weight="600")")
                  : R"(font-size="10" fill="#4d5a68")");
      y += step;
    }
  }

  static std::string_view colour_of(std::uint32_t rail) { return kRails[rail % kRails.size()]; }

  /// Connects a GPU with the NICs that it uses, if they are drawn side by side.
  void pairs() {
    for (std::uint32_t gpu = 0; gpu < topology_.gpus().size(); ++gpu) {
      const Card& card = picture_.cards[picture_.gpus[gpu]];
      for (const std::uint32_t nic : story_.assignment.gpus[gpu].nics) {
        const Card& other = picture_.cards[picture_.nics[nic]];
        const double gap = other.rect.x - card.rect.right();
        const bool is_beside = other.rect.is_turned == card.rect.is_turned && gap > 0 && gap <= 12;
        if (!is_beside || !other.rail) continue;
        const double y = other.rect.y + other.rect.height / 2;
        line(card.rect.right(), y, other.rect.x, y, colour_of(*other.rail), 4);
      }
    }
  }

  /// The vertical position at which a GPU's links begin.
  double edge(std::uint32_t gpu) const {
    const Rect& card = card_of(gpu);
    return card.is_turned ? card.y : card.bottom();
  }
  const Rect& card_of(std::uint32_t gpu) const { return picture_.cards[picture_.gpus[gpu]].rect; }

  void switched_links(const Rect& bar) {
    double most = 0;
    for (std::uint32_t gpu = 0; gpu < topology_.gpus().size(); ++gpu) {
      double bandwidth = 0;
      for (const Link& link : topology_.links()) {
        if (link.a != NodeRef{NodeKind::gpu, gpu} || link.b.kind != NodeKind::nvswitch) continue;
        bandwidth += link.rate.bandwidth.value_or(GBps{}).value;
      }
      most = std::max(most, bandwidth);
      line(card_of(gpu).center(), edge(gpu), card_of(gpu).center(),
           card_of(gpu).is_turned ? bar.bottom() : bar.y, kFast, width_of(bandwidth));
    }
    rect(bar, 6, {"#dfe5ec", kFast});
    const std::size_t count = topology_.nvswitches().size();
    std::string words = fmt::format("{} NVSwitch{}", count, count == 1 ? "" : "es");
    if (most > 0) words += fmt::format(" · {} to each GPU", format_bandwidth(GBps{most}));
    text(bar.x + 12, bar.y + 19, words, R"(font-weight="600")");
  }

  static double width_of(double bandwidth) { return std::clamp(1 + bandwidth / 30, 1.5, 9.0); }

  /// Draws a curve from one GPU to another, shifted by `beside` from their centres. Between GPUs of
  /// the same row it is an arc into the lane, deeper the farther apart they are. Between the two
  /// rows it crosses the lane.
  void hop(std::uint32_t from, std::uint32_t to, double beside, std::string_view attributes) {
    const Rect &a = card_of(from), &b = card_of(to);
    const double x1 = a.center() + beside, x2 = b.center() - beside;
    const double y1 = edge(from), y2 = edge(to);
    double bend1 = (y1 + y2) / 2, bend2 = bend1;
    if (a.is_turned == b.is_turned) {
      const double room = std::abs(arc_end(a.is_turned) - y1) - 8;
      const double far = std::sqrt(std::abs(x2 - x1) / farthest());
      const double depth = (24 + (room - 24) * far) * 4 / 3;
      bend1 = bend2 = y1 + (a.is_turned ? -depth : depth);
    }
    put("<path d=\"M{:.1f} {:.1f} C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}\" fill=\"none\" "
        "{}/>\n",
        x1, y1, x1, bend1, x2, bend2, x2, y2, attributes);
  }

  /// How far into the lane the arcs of one row reach.
  double arc_end(bool is_turned) const {
    if (picture_.nvswitch) return is_turned ? picture_.nvswitch->bottom() : picture_.nvswitch->y;
    const bool has_both = std::ranges::any_of(
        picture_.gpus, [&](std::size_t card) { return picture_.cards[card].rect.is_turned; });
    return has_both ? (picture_.lane_top + picture_.lane_bottom) / 2 : picture_.lane_bottom;
  }

  /// The largest distance between two GPUs.
  double farthest() const {
    double left = picture_.width, right = 1;
    for (const std::size_t card : picture_.gpus) {
      left = std::min(left, picture_.cards[card].rect.center());
      right = std::max(right, picture_.cards[card].rect.center());
    }
    return std::max(right - left, 1.0);
  }

  void direct_links() {
    for (const Link& link : topology_.links()) {
      if (link.a.kind != NodeKind::gpu || link.b.kind != NodeKind::gpu) continue;
      const double bandwidth = link.rate.bandwidth.value_or(GBps{}).value;
      hop(link.a.index, link.b.index, 0,
          fmt::format(R"(stroke="{}" stroke-width="{:.1f}" opacity="0.75")", kFast,
                      width_of(bandwidth)));
    }
  }

  void ring(const Ring& ring) {
    constexpr double kBeside = 8;
    for (std::size_t i = 0; i < ring.gpus.size(); ++i) {
      hop(ring.gpus[i], ring.gpus[(i + 1) % ring.gpus.size()], kBeside,
          fmt::format(R"(stroke="{}" stroke-width="2" marker-end="{}")", kRing, "url(#arrow)"));
    }
  }

  void footer() {
    double y = picture_.height - 46;
    constexpr double kLeft = 24;
    if (!picture_.ring_line.empty()) {
      line(kLeft, y - 4, kLeft + 22, y - 4, kRing, 2);
      text(kLeft + 30, y, picture_.ring_line, R"(font-size="12")");
    }
    y += 24;
    double x = kLeft;
    const auto key = [&](Paint paint, std::string_view words) {
      rect({x, y - 9, 14, 11}, 2, paint);
      text(x + 20, y, words, R"(fill="#5d6b7a")");
      x += 40 + static_cast<double>(words.size()) * 5.4;
    };
    if (!topology_.gpus().empty()) key(paint_of(CardKind::gpu), "GPU");
    if (!story_.assignment.rails.empty()) key(paint_of(CardKind::nic), "NIC of a rail (by colour)");
    if (has_idle_nics()) key(paint_of(CardKind::idle_nic), "other NIC");
    if (has_plugs()) key({"#8b97a5", "#8b97a5"}, "PCIe link, as wide as its bandwidth");
    if (has_fast_links()) key({kFast, kFast}, "NVLink or XGMI");
  }

  /// Links to packages are not drawn.
  bool has_fast_links() const {
    return std::ranges::any_of(topology_.links(),
                               [](const Link& link) { return link.b.kind != NodeKind::package; });
  }
  bool has_idle_nics() const {
    return std::ranges::any_of(picture_.cards,
                               [](const Card& card) { return card.kind == CardKind::idle_nic; });
  }
  bool has_plugs() const {
    return std::ranges::any_of(picture_.cards,
                               [](const Card& card) { return card.uplink.has_value(); });
  }

  const Topology& topology_;
  const Story& story_;
  const Picture picture_;
  std::string svg_;
};

}  // namespace
}  // namespace picture

std::string to_svg(const Topology& topology) {
  const picture::Story story = picture::story_of(topology);
  return picture::Pen(topology, story).draw();
}

std::string to_html(const Topology& topology) {
  const picture::Story story = picture::story_of(topology);
  const Machine& machine = topology.machine();
  const std::string name = machine.host.empty() ? "host" : machine.host;
  std::string page = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{0}</title>\n"
      "<style>\nbody {{ font: 14px Helvetica, Arial, sans-serif; color: #2b3440; margin: 24px; }}\n"
      "svg {{ max-width: 100%; height: auto; }}\n"
      "table {{ border-collapse: collapse; margin-top: 16px; }}\n"
      "td, th {{ text-align: left; padding: 4px 14px 4px 0; border-bottom: 1px solid #dde3ea; }}\n"
      "pre {{ font-size: 12px; overflow-x: auto; }}\n"
      "</style>\n</head>\n<body>\n",
      picture::escaped(name));
  page += picture::Pen(topology, story).draw();
  if (!topology.gpus().empty()) {
    page += "<table>\n<tr><th>GPU</th><th>model</th><th>PCI address</th><th>uses</th></tr>\n";
    for (std::uint32_t i = 0; i < topology.gpus().size(); ++i) {
      const Gpu& gpu = topology.gpus()[i];
      page += fmt::format("<tr><td>GPU{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n", i,
                          picture::escaped(gpu.model), gpu.pci.address.to_string(),
                          picture::escaped(story.assignment.gpus[i].reason));
    }
    page += "</table>\n";
  }
  page += fmt::format("<pre>\n{}</pre>\n</body>\n</html>\n", picture::escaped(to_matrix(topology)));
  return page;
}

}  // namespace xylem::topology
