// SPDX-License-Identifier: Apache-2.0
#include "xylem/execution/program.h"

#include "xylem/execution/tag.h"
#include "xylem/execution/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace xylem::execution {
namespace {

using collectives::Buffer;
using collectives::Edge;
using collectives::EdgeKind;
using collectives::kNone;
using collectives::Schedule;
using collectives::Step;
using collectives::StepKind;

constexpr std::uint32_t kSignalLane = 16;
constexpr std::uint64_t kCacheLine = 64;

std::uint64_t round_up(std::uint64_t value, std::uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

bool is_message(StepKind kind) {
  return kind == StepKind::send || kind == StepKind::recv || kind == StepKind::signal ||
         kind == StepKind::wait;
}

/// Compiles one Schedule into one Program. run() calls the other functions in order.
class Compiler {
 public:
  Compiler(const Schedule& schedule, const ProgramOptions& options)
      : schedule_(schedule),
        options_(options),
        layout_(schedule, options.counts),
        pipeline_(collectives::pipeline(schedule)),
        program_(std::make_shared<Program>()) {}

  Result<std::shared_ptr<const Program>> run() {
    program_->algorithm = schedule_.algorithm;
    program_->slice_bytes = options_.slice_bytes;
    program_->element_bytes = options_.counts.element_bytes;
    program_->window = options_.window;
    program_->is_agreed_on_devices = options_.is_agreed_on_devices;
    program_->arithmetic = options_.arithmetic;
    bytes_at(Buffer::input) = layout_.bytes(Buffer::input);
    bytes_at(Buffer::output) = layout_.bytes(Buffer::output);
    choose_device_scratch();
    place_scratch();
    for (StepId id = 0; id < schedule_.steps.size(); ++id) XYLEM_TRY(add_step(id));
    add_lanes();
    add_successors();
    list_local_steps();
    if (options_.fusion != Fusion::none) mark_views();
    if (options_.fusion == Fusion::views) let_all_stay();
    if (options_.fusion == Fusion::all) {
      mark_casts();
      mark_exchange();
      choose_stay();
    }
    return std::shared_ptr<const Program>(std::move(program_));
  }

  /// True if the program has no views, but would have views if all of its scratch were on the host.
  bool has_lost_views() const noexcept { return has_lost_views_; }

 private:
  /// Chooses the chunks of scratch that are in device memory. Chunks into which messages are
  /// received are on the host, and so are chunks with messages that cannot be sent from device
  /// memory. The chunks of one operand are adjacent, so all of them must be in the same memory.
  void choose_device_scratch() {
    is_on_device_.assign(schedule_.scratch.size(), !options_.device_sends.empty());
    if (options_.device_sends.empty()) return;
    for (const Step& step : schedule_.steps) {
      if (step.kind == StepKind::recv) keep_on_host(step, schedule_.operands[step.target]);
      if (step.kind != StepKind::send || options_.device_sends[step.peer]) continue;
      keep_on_host(step, schedule_.operands[step.first_source]);
    }
    // If a chunk of an operand is on the host, all chunks of this operand must be there. A chunk
    // that is moved may belong to further operands. So repeat until no chunk is moved.
    bool has_changed = true;
    const auto keep = [&](const Step& step, const collectives::Operand& operand) {
      has_changed = keep_together(step, operand) || has_changed;
    };
    while (has_changed) {
      has_changed = false;
      for (const Step& step : schedule_.steps) {
        for (const auto& source : schedule_.sources(step)) keep(step, source);
        if (step.target != kNone) keep(step, schedule_.operands[step.target]);
      }
    }
  }

  void keep_on_host(const Step& step, const collectives::Operand& operand) {
    if (operand.buffer != Buffer::scratch) return;
    const auto first = is_on_device_.begin() + operand.chunk;
    std::fill(first, first + step.chunk_count, false);
  }

  /// If some chunks of an operand are on the host, moves its other chunks to the host. True if any
  /// chunk was moved.
  bool keep_together(const Step& step, const collectives::Operand& operand) {
    if (operand.buffer != Buffer::scratch) return false;
    const auto first = is_on_device_.begin() + operand.chunk;
    const auto on_device = std::count(first, first + step.chunk_count, true);
    if (on_device == 0 || std::cmp_equal(on_device, step.chunk_count)) return false;
    keep_on_host(step, operand);
    return true;
  }

  std::uint64_t& bytes_at(Buffer buffer) {
    return program_->base_bytes[static_cast<std::size_t>(buffer)];
  }

  void place_scratch() {
    scratch_offset_.resize(schedule_.scratch.size());
    std::uint64_t& on_host = bytes_at(Buffer::scratch);
    on_host = place_scratch(0, false);
    const bool has_any = std::ranges::find(is_on_device_, true) != is_on_device_.end();
    if (!has_any) return;
    on_host = round_up(on_host, kCacheLine);
    program_->base_bytes[kDeviceScratch] = place_scratch(on_host, true) - on_host;
  }

  /// Assigns offsets to the scratch chunks of the host, or of the device, beginning at the offset
  /// `end`. Each ring has `window` slices. The other chunks are packed, since an operand may
  /// contain several of them. Returns the offset behind the last chunk.
  std::uint64_t place_scratch(std::uint64_t end, bool on_device) {
    bool packed = false;
    for (std::uint32_t chunk = 0; chunk < schedule_.scratch.size(); ++chunk) {
      if (is_on_device_[chunk] != on_device) continue;
      const std::uint64_t bytes = layout_.extent(Buffer::scratch, chunk, 1).bytes;
      const bool ring = pipeline_.windowed[chunk];
      if (ring || !packed) end = round_up(end, kCacheLine);
      scratch_offset_[chunk] = end;
      end += ring ? std::min(bytes, options_.window * options_.slice_bytes) : bytes;
      packed = !ring;
    }
    return end;
  }

  OperandLayout layout_of(const collectives::Operand& operand, std::uint32_t chunk_count) const {
    OperandLayout layout;
    layout.buffer = operand.buffer;
    layout.base = static_cast<std::uint8_t>(operand.buffer);
    if (operand.buffer == Buffer::scratch) {
      if (is_on_device_[operand.chunk]) layout.base = kDeviceScratch;
      layout.offset = scratch_offset_[operand.chunk];
      layout.ring = pipeline_.windowed[operand.chunk];
    } else {
      layout.offset = layout_.extent(operand.buffer, operand.chunk, chunk_count).offset;
    }
    return layout;
  }

  std::uint64_t step_bytes(const Step& step) const {
    if (step.chunk_count == 0) return 0;
    const auto& operand =
        schedule_.operands[step.target != kNone ? step.target : step.first_source];
    return layout_.extent(operand.buffer, operand.chunk, step.chunk_count).bytes;
  }

  Status add_step(StepId id) {
    const Step& step = schedule_.steps[id];
    ProgramStep out;
    out.kind = step.kind;
    out.finish = step.finish;
    out.bytes = step_bytes(step);
    out.slices = static_cast<std::uint32_t>(
        std::max<std::uint64_t>(1, (out.bytes + options_.slice_bytes - 1) / options_.slice_bytes));
    out.lane = kNone;
    out.source_count = step.source_count;
    out.first_source = static_cast<std::uint32_t>(program_->sources.size());
    const auto mapped = [this](const collectives::Operand& operand) {
      return operand.rank != schedule_.rank;
    };
    const auto sources = schedule_.sources(step);
    if (step.kind == StepKind::put || std::ranges::any_of(sources, mapped) ||
        (step.target != kNone && mapped(schedule_.operands[step.target]))) {
      return failure(
          Code::unsupported,
          fmt::format(
              "algorithm {}: step {} ({}) names another rank's memory, which no transport of this "
              "communicator maps; choose an algorithm of messages",
              schedule_.algorithm, id, name(step.kind)));
    }
    for (const auto& source : sources)
      program_->sources.push_back(layout_of(source, step.chunk_count));
    if (step.target != kNone)
      out.target = layout_of(schedule_.operands[step.target], step.chunk_count);
    out.first_edge = static_cast<std::uint32_t>(program_->edges.size());
    for (std::uint32_t e = pipeline_.first_edge[id]; e < pipeline_.first_edge[id + 1]; ++e) {
      Edge edge = pipeline_.edges[e];
      // Signals and waits move no blocks. Each of their slices is a message by itself, and
      // corresponds to no slice of another step.
      if (step.chunk_count == 0 || schedule_.steps[edge.before].chunk_count == 0) {
        edge.kind = EdgeKind::whole;
      }
      program_->edges.push_back(edge);
    }
    if (is_message(step.kind)) join_lane(id, step, out);
    out.edge_count = static_cast<std::uint32_t>(program_->edges.size()) - out.first_edge;
    program_->steps.push_back(out);
    return {};
  }

  /// Appends a step to its Stream. A wait receives the signals that no earlier wait of its stream
  /// has received, and runs after the previous wait.
  void join_lane(StepId id, const Step& step, ProgramStep& out) {
    const bool outgoing = step.kind == StepKind::send || step.kind == StepKind::signal;
    const bool signal = step.kind == StepKind::signal || step.kind == StepKind::wait;
    const std::uint32_t number = step.channel + (signal ? kSignalLane : 0);
    auto& stream = streams_[{step.peer, number, outgoing}];
    if (step.kind == StepKind::wait) {
      if (!stream.steps.empty()) {
        program_->edges.push_back(Edge{stream.steps.back(), EdgeKind::whole});
      }
      const std::uint32_t needed = step.value > stream.messages ? step.value - stream.messages : 0;
      out.slices = std::max<std::uint32_t>(1, needed);
      out.ordinal = stream.messages;
      stream.messages += needed;
      // A wait that needs no further signal is not part of the lane. It completes as a local step
      // after the earlier waits.
      if (needed > 0) stream.lane_steps.push_back(id);
    } else {
      out.ordinal = stream.messages;
      stream.messages += out.slices;
      stream.lane_steps.push_back(id);
    }
    stream.steps.push_back(id);
  }

  void add_lanes() {
    for (const auto& [key, stream] : streams_) {
      const auto index = static_cast<std::uint32_t>(program_->lanes.size());
      Lane lane;
      lane.peer = std::get<0>(key);
      lane.number = std::get<1>(key);
      lane.outgoing = std::get<2>(key);
      lane.first_step = static_cast<std::uint32_t>(program_->lane_steps.size());
      lane.step_count = static_cast<std::uint32_t>(stream.lane_steps.size());
      for (const StepId id : stream.lane_steps) {
        program_->steps[id].lane = index;
        program_->lane_steps.push_back(id);
      }
      program_->lanes.push_back(lane);
    }
  }

  void add_successors() {
    const auto count = program_->steps.size();
    std::vector<std::uint32_t> fan_out(count + 1, 0);
    for (const auto& edge : program_->edges) ++fan_out[edge.before + 1];
    for (std::size_t i = 0; i < count; ++i) fan_out[i + 1] += fan_out[i];
    program_->successors.resize(program_->edges.size());
    auto next = fan_out;
    for (StepId id = 0; id < count; ++id) {
      auto& step = program_->steps[id];
      for (const Edge& edge : program_->edges_of(step)) {
        program_->successors[next[edge.before]++] = id;
      }
      step.first_successor = fan_out[id];
      step.successor_count = fan_out[id + 1] - fan_out[id];
    }
  }

  /// Finds the rings that a receive fills and that only one local step reads. This step can read
  /// the received messages as views.
  void mark_views() {
    std::vector<StepId> writer(schedule_.scratch.size(), kNone), reader = writer;
    std::vector<std::uint32_t> readers(schedule_.scratch.size(), 0);
    for (StepId id = 0; id < schedule_.steps.size(); ++id) {
      const Step& step = schedule_.steps[id];
      for (const auto& source : schedule_.sources(step)) {
        if (source.buffer != Buffer::scratch) continue;
        reader[source.chunk] = id;
        ++readers[source.chunk];
      }
      if (step.kind != StepKind::recv) continue;
      const auto& target = schedule_.operands[step.target];
      if (target.buffer == Buffer::scratch) writer[target.chunk] = id;
    }
    for (std::uint32_t chunk = 0; chunk < schedule_.scratch.size(); ++chunk) {
      if (!pipeline_.windowed[chunk] || writer[chunk] == kNone || readers[chunk] != 1) continue;
      const ProgramStep& local = program_->steps[reader[chunk]];
      if (local.lane != kNone) continue;
      OperandLayout& target = program_->steps[writer[chunk]].target;
      target.view = program_->view_count;
      program_->view_count += program_->window;
      for (std::uint32_t i = 0; i < local.source_count; ++i) {
        OperandLayout& source = program_->sources[local.first_source + i];
        if (source.same_memory(target)) source.view = target.view;
      }
    }
  }

  bool follows_by_slice(StepId id, StepId before) const {
    const ProgramStep& step = program_->steps[id];
    const auto edges = program_->edges_of(step);
    return std::ranges::find(edges, Edge{before, EdgeKind::slice}) != edges.end();
  }

  /// Groups the sends of the same memory, the steps that produce the bytes that they send, and the
  /// copy of these bytes for which no step waits. If a schedule writes the same memory again later,
  /// the dependencies of the steps show which steps belong together.
  void mark_casts() {
    using Key = std::tuple<Buffer, std::uint64_t, bool, std::uint64_t>;
    struct Found {
      std::vector<StepId> sends, makers;
      StepId copy = kNone;
    };
    std::map<Key, Found> found;
    auto& steps = program_->steps;
    const auto at = [&](const OperandLayout& layout, const ProgramStep& step) -> Found& {
      return found[{layout.buffer, layout.offset, layout.ring, step.bytes}];
    };
    for (StepId id = 0; id < steps.size(); ++id) {
      const ProgramStep& step = steps[id];
      if (step.kind != StepKind::send || step.bytes == 0) continue;
      at(program_->source_of(step), step).sends.push_back(id);
    }
    for (StepId id = 0; id < steps.size(); ++id) {
      ProgramStep& step = steps[id];
      const bool is_copy = step.kind == StepKind::copy;
      step.is_unawaited = is_copy && step.successor_count == 0;
      if (step.is_unawaited) at(program_->source_of(step), step).copy = id;
      if (!is_copy && step.kind != StepKind::recv && step.kind != StepKind::reduce) continue;
      Found& same = at(step.target, step);
      const auto follows = [&](StepId send) { return follows_by_slice(send, id); };
      if (std::ranges::any_of(same.sends, follows)) same.makers.push_back(id);
    }
    for (const auto& [key, cast] : found) {
      const bool is_alone = cast.sends.size() == 1 && cast.makers.empty() && cast.copy == kNone;
      if (cast.sends.empty() || is_alone) continue;
      const auto index = static_cast<std::uint32_t>(program_->casts.size());
      for (const StepId id : cast.sends) steps[id].cast = index;
      for (const StepId id : cast.makers) steps[id].cast = index;
      if (cast.copy != kNone) steps[cast.copy].cast = index;
      program_->casts.push_back({static_cast<std::uint32_t>(program_->cast_sends.size()),
                                 static_cast<std::uint32_t>(cast.sends.size()), cast.copy});
      program_->cast_sends.insert(program_->cast_sends.end(), cast.sends.begin(), cast.sends.end());
    }
  }

  void list_local_steps() {
    for (StepId id = 0; id < program_->steps.size(); ++id) {
      if (program_->steps[id].lane == kNone) program_->local_steps.push_back(id);
    }
  }

  void mark_exchange() {
    const auto& steps = program_->steps;
    program_->is_exchange =
        !are_all_by_rounds() && collectives::is_exchange(schedule_) &&
        std::ranges::all_of(steps, [](const ProgramStep& step) { return step.slices == 1; });
  }

  /// True if views could make two ranks wait for each other. A step that follows a send waits until
  /// the peer has read the sent data, if this data stays where it is. If the step also reads views,
  /// then the data of its peers stays until the step has run. So both ranks could wait. Data stays
  /// in the user's memory and, if `with_scratch` is set, in scratch of a device.
  bool keeps_others(bool with_scratch) const {
    const auto& steps = program_->steps;
    std::vector<bool> follows_send(steps.size(), false);
    for (StepId id = 0; id < steps.size(); ++id) {
      const ProgramStep& step = steps[id];
      for (const Edge& edge : program_->edges_of(step)) {
        const ProgramStep& before = steps[edge.before];
        const bool may_stay =
            before.kind == StepKind::send && stays_at(program_->source_of(before), with_scratch);
        if (edge.kind == EdgeKind::lag || (!may_stay && !follows_send[edge.before])) continue;
        follows_send[id] = true;
      }
      const auto is_view = [](const OperandLayout& source) { return source.view != kNone; };
      if (follows_send[id] && std::ranges::any_of(program_->sources_of(step), is_view)) return true;
    }
    return false;
  }

  static bool stays_at(const OperandLayout& layout, bool with_scratch) noexcept {
    return layout.buffer != Buffer::scratch || (with_scratch && layout.base == kDeviceScratch);
  }

  /// Decides which sent data may stay where it is until peers have read it.
  void choose_stay() {
    if (program_->is_exchange || keeps_others(false)) return;
    program_->in_place = program_->arithmetic.reduce == nullptr ? transport::InPlace::anywhere
                                                                : transport::InPlace::shared_only;
  }

  /// Data in device memory always stays where it is until peers have read it. If views could then
  /// make two ranks wait for each other, the program has no views, and received slices are copied
  /// to their places.
  void let_all_stay() {
    program_->in_place = transport::InPlace::shared_only;
    if (options_.has_safe_views || !keeps_others(true)) return;
    has_lost_views_ = !keeps_others(false);
    program_->view_count = 0;
    for (ProgramStep& step : program_->steps) step.target.view = kNone;
    for (OperandLayout& source : program_->sources) source.view = kNone;
  }

  /// The steps to or from one peer on one channel, which become a lane. Signals and waits have
  /// streams of their own.
  struct Stream {
    std::vector<StepId> steps;       ///< All steps of the stream, in list order.
    std::vector<StepId> lane_steps;  ///< The steps that move messages.
    std::uint32_t messages = 0;
  };

  const Schedule& schedule_;
  const ProgramOptions& options_;
  collectives::Layout layout_;
  collectives::Pipeline pipeline_;
  std::shared_ptr<Program> program_;
  std::vector<bool> is_on_device_;  ///< For each chunk of scratch.
  bool has_lost_views_ = false;
  std::vector<std::uint64_t> scratch_offset_;
  std::map<std::tuple<std::uint32_t, std::uint32_t, bool>, Stream> streams_;
};

}  // namespace

Result<std::shared_ptr<const Program>> compile(const Schedule& schedule,
                                               const ProgramOptions& options) {
  Compiler compiler(schedule, options);
  auto program = compiler.run();
  if (!program || !compiler.has_lost_views()) return program;
  // Views save more time than scratch on the device. So compile again, with all scratch on the
  // host.
  ProgramOptions on_host = options;
  on_host.device_sends.clear();
  return Compiler(schedule, on_host).run();
}

}  // namespace xylem::execution
