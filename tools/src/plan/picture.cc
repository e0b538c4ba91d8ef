// SPDX-License-Identifier: Apache-2.0
#include "plan/picture.h"

#include "xylem/collectives/estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

namespace xylem::tools {
namespace {

using collectives::Schedule;
using collectives::Step;
using collectives::StepKind;
using collectives::StepTime;

constexpr double kWidth = 1160;
constexpr double kLeft = 96;  // Left end of the time axis; names of rows are to its left.
constexpr double kRight = 24;
constexpr double kTop = 92;
constexpr double kRow = 30;
constexpr double kBar = 9;  // Height of a bar.
constexpr double kHostGap = 16;
constexpr double kBottom = 46;

constexpr std::string_view kLocal = "#2a6fb0";
constexpr std::string_view kRemote = "#e8710a";
constexpr std::string_view kReduce = "#3c9a5f";
constexpr std::string_view kCopy = "#9aa7b4";

/// A multiple (1, 2 or 5) of a power of ten, chosen so that about `count` ticks fit up to `end`.
double tick_of(double end, int count) {
  const double rough = end / count;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

class Pen {
 public:
  Pen(const PlannedJob& job, std::vector<Schedule> ranks, std::vector<std::vector<StepTime>> times)
      : job_(job), ranks_(std::move(ranks)), times_(std::move(times)) {
    for (const auto& of_rank : times_) {
      for (const StepTime& time : of_rank) end_us_ = std::max(end_us_, time.ended_us);
    }
    // The plan of a single rank takes no time; avoid a division by zero.
    end_us_ = std::max(end_us_, 1e-3);
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      rows_.push_back(kTop + kRow * (rank + 0.5) + kHostGap * job.model.host[rank]);
    }
  }

  std::string draw(const std::string& title) {
    const double height = rows_.back() + kRow / 2 + kBottom;
    put(R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {} {:.0f}" width="{}" )"
        R"(font-family="Helvetica, Arial, sans-serif" font-size="12" fill="#2b3440">)"
        "\n",
        kWidth, height, kWidth);
    put("<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n");
    put("<text x=\"24\" y=\"34\" font-size=\"17\" font-weight=\"bold\">{}</text>\n", title);
    legend();
    rows();
    axis();
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) computing(rank);
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) messages(rank);
    put("</svg>\n");
    return std::move(text_);
  }

 private:
  template <typename... Args>
  void put(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }

  double x(double us) const { return kLeft + (kWidth - kLeft - kRight) * us / end_us_; }
  bool is_local(std::uint32_t a, std::uint32_t b) const {
    return job_.model.host[a] == job_.model.host[b];
  }

  void legend() {
    double at = 24;
    const auto entry = [&](std::string_view what, std::string_view colour) {
      put(R"(<rect x="{:.0f}" y="48" width="22" height="5" rx="2" fill="{}"/>)", at, colour);
      put("<text x=\"{:.0f}\" y=\"55\">{}</text>\n", at + 28, what);
      at += 44 + 6.4 * static_cast<double>(what.size());
    };
    entry("message inside a host", kLocal);
    if (job_.hosts() > 1) entry("message between hosts", kRemote);
    entry("reduction", kReduce);
    entry("copy", kCopy);
  }

  void rows() {
    for (std::uint32_t rank = 0; rank < rows_.size(); ++rank) {
      const std::uint32_t host = job_.model.host[rank];
      if (rank == 0 || job_.model.host[rank - 1] != host) {
        const double height = kRow * job_.ranks_of_host[host];
        put(R"(<rect x="12" y="{:.1f}" width="{:.0f}" height="{:.0f}" rx="6" fill="#f3f5f8"/>)"
            "\n",
            rows_[rank] - kRow / 2, kWidth - 24, height);
      }
      put(R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" stroke="#d3dbe4"/>)", kLeft,
          rows_[rank], kWidth - kRight, rows_[rank]);
      const std::string name =
          job_.hosts() > 1 ? fmt::format("{} · host {}", rank, host) : fmt::format("rank {}", rank);
      put("<text x=\"22\" y=\"{:.1f}\">{}</text>\n", rows_[rank] + 4, name);
    }
  }

  void axis() {
    const double bottom = rows_.back() + kRow / 2 + 14;
    const double tick = tick_of(end_us_, 8);
    for (int i = 0; i * tick <= end_us_; ++i) {
      const double at = x(i * tick);
      put(R"(<line x1="{:.1f}" y1="{:.0f}" x2="{:.1f}" y2="{:.1f}" stroke="#e3e8ee"/>)", at,
          kTop - 8, at, bottom - 10);
      put("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\" fill=\"#6b7785\">{:.4g}{}"
          "</text>\n",
          at, bottom + 6, i * tick, i == 0 ? " us" : "");
    }
  }

  void computing(std::uint32_t rank) {
    const Schedule& schedule = ranks_[rank];
    for (collectives::StepId id = 0; id < schedule.steps.size(); ++id) {
      const Step& step = schedule.steps[id];
      if (step.kind != StepKind::reduce && step.kind != StepKind::copy) continue;
      const StepTime& time = times_[rank][id];
      put(R"(<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{}" rx="1.5" fill="{}">)",
          x(time.began_us), rows_[rank] - kBar / 2,
          std::max(x(time.ended_us) - x(time.began_us), 1.0), kBar,
          step.kind == StepKind::reduce ? kReduce : kCopy);
      put("<title>rank {}, step {}: {}, {:.4g} to {:.4g} us</title></rect>\n", rank, id,
          name(step.kind), time.began_us, time.ended_us);
    }
  }

  void messages(std::uint32_t rank) {
    const Schedule& schedule = ranks_[rank];
    for (collectives::StepId id = 0; id < schedule.steps.size(); ++id) {
      const Step& step = schedule.steps[id];
      const bool leaves = step.kind == StepKind::send || step.kind == StepKind::put ||
                          step.kind == StepKind::signal;
      if (!leaves) continue;
      const StepTime& time = times_[rank][id];
      put(R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" stroke="{}" )"
          R"(stroke-width="1.4" stroke-opacity="0.8" stroke-linecap="round">)",
          x(time.began_us), rows_[rank], x(time.ended_us), rows_[step.peer],
          is_local(rank, step.peer) ? kLocal : kRemote);
      put("<title>rank {}, step {}: {} to rank {}, {:.4g} to {:.4g} us</title></line>\n", rank, id,
          name(step.kind), step.peer, time.began_us, time.ended_us);
    }
  }

  const PlannedJob& job_;
  std::vector<Schedule> ranks_;
  std::vector<std::vector<StepTime>> times_;
  std::vector<double> rows_;  // The vertical centre of each rank's row.
  double end_us_ = 0;
  std::string text_;
};

}  // namespace

std::string draw_plan(const PlannedJob& job,
                      const collectives::Choice& choice,
                      std::uint64_t bytes,
                      const std::string& title) {
  std::vector<Schedule> ranks;
  ranks.reserve(choice.shape.ranks);
  for (std::uint32_t rank = 0; rank < choice.shape.ranks; ++rank) {
    ranks.push_back(choice.schedule(rank));
  }
  auto times = collectives::predict_steps(ranks, collectives::Counts{.count = bytes}, job.model);
  return Pen(job, std::move(ranks), std::move(times)).draw(title);
}

}  // namespace xylem::tools
