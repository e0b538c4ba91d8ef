// SPDX-License-Identifier: Apache-2.0
//
// Prints and parses schedules. The messages of errors contain the printed text of a step, too.
#include "xylem/collectives/text.h"

#include "step_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

namespace xylem::collectives {

std::string operand_text(const Schedule& schedule, const Operand& operand, std::uint32_t count) {
  std::string text = fmt::format("{}[{}", name(operand.buffer), operand.chunk);
  if (count > 1) text += fmt::format("..{}", operand.chunk + count - 1);
  text += ']';
  if (operand.rank != schedule.rank) text += fmt::format("@{}", operand.rank);
  return text;
}

std::string step_text(const Schedule& schedule, const Step& step) {
  const auto operand = [&](std::uint32_t index) {
    return operand_text(schedule, schedule.operands[index], step.chunk_count);
  };
  std::string text(name(step.kind));
  if (step.peer != kNone) text += fmt::format(" ch{} peer {}", step.channel, step.peer);
  if (step.kind == StepKind::wait) text += fmt::format(" value {}", step.value);
  if (step.target != kNone) text += ' ' + operand(step.target);
  if (step.target != kNone && step.source_count > 0) text += " =";
  for (std::uint32_t i = 0; i < step.source_count; ++i) {
    text += (i == 0 ? " " : " + ") + operand(step.first_source + i);
  }
  if (step.finish) text += " finish";
  return text;
}

namespace {

// Empty if all hosts have one rank, which means that the plan does not depend on hosts.
std::string hosts_text(const Shape& shape) {
  if (!shape.host_sizes.empty()) return fmt::format(" hosts {}", fmt::join(shape.host_sizes, ","));
  return shape.per_host == 1 ? "" : fmt::format(" per_host {}", shape.per_host);
}

}  // namespace

std::string print(const Schedule& schedule) {
  std::string text = fmt::format("schedule {} {} rank {} of {}{} root {} blocks {} channels {}\n",
                                 name(schedule.shape.collective), schedule.algorithm, schedule.rank,
                                 schedule.shape.ranks, hosts_text(schedule.shape),
                                 schedule.shape.root, schedule.blocks, schedule.channels);
  if (!schedule.scratch.empty())
    text += fmt::format("scratch {}\n", fmt::join(schedule.scratch, " "));
  for (StepId id = 0; id < schedule.steps.size(); ++id) {
    const Step& step = schedule.steps[id];
    text += fmt::format("{}: {}", id, step_text(schedule, step));
    const auto before = schedule.predecessors_of(step);
    if (!before.empty()) text += fmt::format("  after {}", fmt::join(before, " "));
    text += '\n';
  }
  return text;
}

namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }
bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-';
}

// Splits one line into words and single marks, and parses the basic elements of the grammar.
class Line {
 public:
  explicit Line(std::string_view text) : rest_(text) { skip(); }

  bool at_end() const { return rest_.empty(); }
  std::string_view rest() const { return rest_; }

  std::string_view word() {
    std::size_t size = 0;
    while (size < rest_.size() && is_word(rest_[size])) ++size;
    return take(size);
  }
  bool accept(std::string_view mark) {
    if (!rest_.starts_with(mark)) return false;
    // A word must match completely: "after1" is not "after".
    if (is_word(mark.back()) && rest_.size() > mark.size() && is_word(rest_[mark.size()]))
      return false;
    take(mark.size());
    return true;
  }
  std::optional<std::uint32_t> number() {
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc()) return std::nullopt;
    take(static_cast<std::size_t>(end - rest_.data()));
    return value;
  }

 private:
  std::string_view take(std::size_t size) {
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    skip();
    return taken;
  }
  void skip() {
    while (!rest_.empty() && is_space(rest_.front())) rest_.remove_prefix(1);
  }

  std::string_view rest_;
};

class Parser {
 public:
  /// `lines_before`: the number of lines that precede the text of parse() in the whole text.
  explicit Parser(std::size_t lines_before = 0) : line_number_(lines_before) {}

  Result<Schedule> parse(std::string_view text) {
    while (!text.empty()) {
      const std::size_t end = text.find('\n');
      Line line(text.substr(0, end));
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
      ++line_number_;
      if (line.at_end() || line.accept("#")) continue;
      XYLEM_TRY(parse_line(line));
    }
    if (!has_header_) return reject("no line 'schedule …'");
    return std::move(schedule_);
  }

 private:
  Status reject(std::string_view rule) const {
    return failure(Code::bad_schedule, fmt::format("line {}: {}", line_number_, rule));
  }
  Status reject(const Line& line, std::string_view rule) const {
    const std::string_view rest = line.rest().substr(0, 24);
    return reject(fmt::format("{}, not '{}'", rule, rest.empty() ? "the end of the line" : rest));
  }

  Status parse_line(Line& line) {
    if (!has_header_) {
      XYLEM_TRY(parse_header(line));
      has_header_ = true;
    } else if (schedule_.steps.empty() && schedule_.scratch.empty() && line.accept("scratch")) {
      XYLEM_TRY(parse_scratch(line));
    } else {
      XYLEM_TRY(parse_step(line));
    }
    return line.at_end() ? Status() : reject(line, "expected the end of the line");
  }

  Status parse_keyed(Line& line, std::string_view key, std::uint32_t& value) {
    if (!line.accept(key)) return reject(line, fmt::format("expected '{}'", key));
    return parse_number(line, value);
  }

  Status parse_number(Line& line, std::uint32_t& value) {
    const auto number = line.number();
    if (!number) return reject(line, "expected a number below 2^32");
    value = *number;
    return {};
  }

  Status parse_header(Line& line) {
    if (!line.accept("schedule")) return reject(line, "expected 'schedule'");
    const auto collective = parse_collective(line.word());
    if (!collective) return reject(collective.status().message());
    schedule_.shape.collective = *collective;
    schedule_.algorithm = std::string(line.word());
    if (schedule_.algorithm.empty()) return reject(line, "expected the algorithm's name");
    XYLEM_TRY(parse_keyed(line, "rank", schedule_.rank));
    XYLEM_TRY(parse_keyed(line, "of", schedule_.shape.ranks));
    if (line.accept("per_host")) XYLEM_TRY(parse_number(line, schedule_.shape.per_host));
    if (line.accept("hosts")) {
      do {
        XYLEM_TRY(parse_number(line, schedule_.shape.host_sizes.emplace_back()));
      } while (line.accept(","));
    }
    XYLEM_TRY(parse_keyed(line, "root", schedule_.shape.root));
    XYLEM_TRY(parse_keyed(line, "blocks", schedule_.blocks));
    return parse_keyed(line, "channels", schedule_.channels);
  }

  Status parse_scratch(Line& line) {
    do {
      XYLEM_TRY(parse_number(line, schedule_.scratch.emplace_back()));
    } while (!line.at_end());
    return {};
  }

  Status parse_step(Line& line) {
    std::uint32_t id = 0;
    XYLEM_TRY(parse_number(line, id));
    if (id != schedule_.steps.size()) {
      return reject(fmt::format("expected step {}, not {}", schedule_.steps.size(), id));
    }
    if (!line.accept(":")) return reject(line, "expected ':'");
    Step step;
    XYLEM_TRY(parse_kind(line, step.kind));
    const bool has_peer = step.kind != StepKind::copy && step.kind != StepKind::reduce;
    if (has_peer) XYLEM_TRY(parse_peer(line, step));
    if (step.kind == StepKind::wait) XYLEM_TRY(parse_keyed(line, "value", step.value));
    if (step.kind != StepKind::signal && step.kind != StepKind::wait) {
      XYLEM_TRY(parse_operands(line, step));
    }
    if (step.kind == StepKind::reduce) step.finish = line.accept("finish");
    XYLEM_TRY(parse_after(line, step));
    schedule_.steps.push_back(step);
    return {};
  }

  Status parse_kind(Line& line, StepKind& kind) {
    const std::string_view word = line.word();
    for (const StepKind candidate :
         {StepKind::send, StepKind::recv, StepKind::copy, StepKind::reduce, StepKind::put,
          StepKind::signal, StepKind::wait}) {
      if (word != name(candidate)) continue;
      kind = candidate;
      return {};
    }
    return reject(fmt::format("unknown step '{}'", word.substr(0, 24)));
  }

  // Parses "ch0 peer 3". The number of the channel is part of the word "ch0".
  Status parse_peer(Line& line, Step& step) {
    const std::string_view word = line.word();
    std::uint32_t channel = 0;
    const char* const end = word.data() + word.size();
    const bool channel_named = word.starts_with("ch");
    if (!channel_named || std::from_chars(word.data() + 2, end, channel).ptr != end ||
        word.size() < 3 || channel >= kMaxChannels) {
      return reject(fmt::format("expected a channel, ch0 to ch{}, not '{}'", kMaxChannels - 1,
                                word.substr(0, 24)));
    }
    step.channel = static_cast<std::uint8_t>(channel);
    return parse_keyed(line, "peer", step.peer);
  }

  Status parse_operands(Line& line, Step& step) {
    const bool has_target = step.kind != StepKind::send;
    const bool has_sources = step.kind != StepKind::recv;
    if (has_target) {
      step.target = static_cast<std::uint32_t>(schedule_.operands.size());
      XYLEM_TRY(parse_operand(line, step));
      if (has_sources && !line.accept("=")) return reject(line, "expected '='");
    }
    if (!has_sources) return {};
    step.first_source = static_cast<std::uint32_t>(schedule_.operands.size());
    do {
      if (step.source_count == std::numeric_limits<std::uint16_t>::max())
        return reject("too many sources");
      XYLEM_TRY(parse_operand(line, step));
      ++step.source_count;
    } while (step.kind == StepKind::reduce && line.accept("+"));
    return {};
  }

  // Parses "input[3]", "input[3..5]" or "input[3]@7". All operands of a step have the same number
  // of chunks.
  Status parse_operand(Line& line, Step& step) {
    Operand operand{schedule_.rank, 0, Buffer::input};
    const std::string_view word = line.word();
    if (word == name(Buffer::output)) {
      operand.buffer = Buffer::output;
    } else if (word == name(Buffer::scratch)) {
      operand.buffer = Buffer::scratch;
    } else if (word != name(Buffer::input)) {
      return reject(fmt::format("expected input, output or scratch, not '{}'", word.substr(0, 24)));
    }
    if (!line.accept("[")) return reject(line, "expected '['");
    XYLEM_TRY(parse_number(line, operand.chunk));
    std::uint32_t last = operand.chunk;
    if (line.accept("..")) XYLEM_TRY(parse_number(line, last));
    if (!line.accept("]")) return reject(line, "expected ']'");
    if (last < operand.chunk || last - operand.chunk == kNone)
      return reject("chunks run backwards or too far");
    if (line.accept("@")) XYLEM_TRY(parse_number(line, operand.rank));
    const std::uint32_t count = last - operand.chunk + 1;
    if (step.chunk_count != 0 && step.chunk_count != count) {
      return reject(
          fmt::format("operands of {} and of {} chunks in one step", step.chunk_count, count));
    }
    step.chunk_count = count;
    schedule_.operands.push_back(operand);
    return {};
  }

  Status parse_after(Line& line, Step& step) {
    step.first_predecessor = static_cast<std::uint32_t>(schedule_.predecessors.size());
    if (!line.accept("after")) return {};
    do {
      if (step.predecessor_count == std::numeric_limits<std::uint16_t>::max()) {
        return reject("too many predecessors");
      }
      std::uint32_t before = 0;
      XYLEM_TRY(parse_number(line, before));
      if (before >= schedule_.steps.size()) {
        return reject(fmt::format("step {} comes after step {}, which is not before it",
                                  schedule_.steps.size(), before));
      }
      schedule_.predecessors.push_back(before);
      ++step.predecessor_count;
    } while (!line.at_end());
    return {};
  }

  Schedule schedule_;
  bool has_header_ = false;
  std::size_t line_number_;
};

}  // namespace

Result<Schedule> parse_schedule(std::string_view text) { return Parser().parse(text); }

Result<std::vector<std::vector<Schedule>>> parse_plans(std::string_view text) {
  struct Found {
    std::size_t line = 0;  // The line at which the plan's first schedule begins.
    std::map<std::uint32_t, Schedule> ranks;
  };
  std::map<std::tuple<Collective, std::uint32_t, std::uint32_t>, Found> found;
  const auto refuse = [](std::size_t line, std::uint32_t rank, const Shape& shape,
                         std::string_view what) {
    return failure(Code::bad_schedule,
                   fmt::format("line {}: {} of {} ranks with root {}: rank {} {}", line,
                               name(shape.collective), shape.ranks, shape.root, rank, what));
  };
  std::size_t lines_before = 0;
  while (!text.empty()) {
    // A section is one schedule with the lines that follow it. The first section also contains the
    // lines before its schedule.
    const auto own = text.starts_with("schedule ") ? 0 : text.find("\nschedule ");
    const auto end = own == std::string_view::npos ? own : text.find("\nschedule ", own + 1);
    const std::string_view section = end == std::string_view::npos ? text : text.substr(0, end + 1);
    text.remove_prefix(section.size());
    XYLEM_TRY(Schedule schedule, Parser(lines_before).parse(section));
    const Shape shape = schedule.shape;
    const std::uint32_t rank = schedule.rank;
    const std::size_t line = lines_before + 1;
    if (rank >= shape.ranks) return refuse(line, rank, shape, "is not one of these ranks");
    auto& plan = found[{shape.collective, shape.ranks, shape.root}];
    if (plan.ranks.empty()) plan.line = line;
    if (!plan.ranks.emplace(rank, std::move(schedule)).second) {
      return refuse(line, rank, shape, "has a second schedule");
    }
    lines_before += static_cast<std::size_t>(std::ranges::count(section, '\n'));
  }
  std::vector<std::vector<Schedule>> plans;
  for (auto& [key, plan] : found) {
    auto& ranks = plans.emplace_back();
    const Shape shape = plan.ranks.begin()->second.shape;
    for (auto& [rank, schedule] : plan.ranks) {
      if (rank != ranks.size()) break;
      ranks.push_back(std::move(schedule));
    }
    if (ranks.size() != shape.ranks) {
      return refuse(plan.line, static_cast<std::uint32_t>(ranks.size()), shape,
                    "has no schedule in the text");
    }
  }
  return plans;
}

}  // namespace xylem::collectives
