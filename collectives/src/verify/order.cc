// SPDX-License-Identifier: Apache-2.0
//
// Checks claim 1 of verify.h, and the part of claim 2 that concerns order. Steps are visited in a
// topological order. Each read must follow the last write to its location. Each write must follow
// all reads since the last write or, if there are none, the last write itself. If dependencies and
// messages order all these pairs, they order all other pairs by transitivity. So the check finds
// every plan in which two accesses are unordered.
#include "verify/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <queue>

namespace xylem::collectives::verifier {
namespace {

// Decides whether one step always completes before another starts. In most pairs, the earlier step
// is a direct predecessor. Otherwise the ancestors of the later step are explored backwards, only
// as far as necessary. Under a symmetry a path over messages may lead to another image of the same
// rank, so only dependencies within the rank are followed.
class Precedence {
 public:
  Precedence(const World& world, std::span<const Global> order)
      : world_(world), position_(order.size()), seen_by_(order.size(), kNone) {
    for (std::uint32_t i = 0; i < order.size(); ++i) position_[order[i]] = i;
  }

  bool holds(Global earlier, Global later) {
    bool direct = false;
    for_each_before(later, [&](Global before) { direct |= before == earlier; });
    return direct || is_ancestor(earlier, later);
  }

 private:
  template <typename Visit>
  void for_each_before(Global id, Visit&& visit) const {
    if (world_.symmetry == nullptr) {
      world_.for_each_before(id, visit);
    } else {
      world_.for_each_predecessor(id, visit);
    }
  }

  bool is_ancestor(Global earlier, Global later) {
    if (later != later_) {
      later_ = later;
      frontier_ = {};
      push_all_before(later);
    }
    // The frontier returns the step with the highest position first. So when only positions before
    // that of `earlier` remain, `earlier` has been found if it is an ancestor of `later`.
    while (!frontier_.empty() && frontier_.top().first >= position_[earlier]) {
      const Global id = frontier_.top().second;
      frontier_.pop();
      push_all_before(id);
    }
    return seen_by_[earlier] == later;
  }

  void push_all_before(Global id) {
    for_each_before(id, [&](Global before) {
      if (seen_by_[before] == later_) return;
      seen_by_[before] = later_;
      frontier_.emplace(position_[before], before);
    });
  }

  const World& world_;
  std::vector<std::uint32_t> position_;
  std::vector<Global> seen_by_;  // The last value of later_ of which a step is an ancestor.
  std::priority_queue<std::pair<std::uint32_t, Global>> frontier_;
  Global later_ = kNone;
};

class OrderChecker {
 public:
  OrderChecker(const World& world, std::span<const Global> order, const Locations& locations)
      : locations_(locations), world_(world), precedence_(world, order), last_(locations.count()) {}

  Status visit(Global id) {
    const Schedule& schedule = world_.schedule(id);
    const Step& step = world_.step(id);
    if (locations_.is_void(schedule, step)) return {};
    const Operand* target = step.target == kNone ? nullptr : &schedule.operands[step.target];
    for (std::uint32_t i = 0; i < step.chunk_count; ++i) {
      for (const Operand& source : schedule.sources(step)) {
        XYLEM_TRY(read(id, locations_.of(source, i)));
      }
      if (target != nullptr) XYLEM_TRY(write(id, locations_.of(*target, i)));
    }
    return {};
  }

 private:
  struct Accesses {
    Global writer = kNone;
    std::vector<Global> readers;  // The steps that have read since the last write.
  };

  Status read(Global id, Location location) {
    Accesses& last = last_[location];
    if (last.writer != kNone && !precedence_.holds(last.writer, id)) {
      return unordered(last.writer, id, location);
    }
    if (last.readers.empty() || last.readers.back() != id) last.readers.push_back(id);
    return {};
  }

  Status write(Global id, Location location) {
    Accesses& last = last_[location];
    bool read_since = false;
    for (const Global reader : last.readers) {
      if (reader == id) continue;  // The step is a reduction into one of its own sources.
      read_since = true;
      if (!precedence_.holds(reader, id)) return unordered(reader, id, location);
    }
    if (!read_since && last.writer != kNone && !precedence_.holds(last.writer, id)) {
      return unordered(last.writer, id, location);
    }
    last.writer = id;
    last.readers.clear();
    return {};
  }

  Status unordered(Global a, Global b, Location location) const {
    const bool in_place = locations_.aliasing() == Aliasing::in_place;
    return failure(
        Code::bad_schedule,
        fmt::format("{}: nothing orders {} and {}, which both access {}, one of them writing",
                    in_place ? "aliasing: in place" : "order", world_.describe(std::min(a, b)),
                    world_.describe(std::max(a, b)), locations_.describe(location)));
  }

  const Locations& locations_;
  const World& world_;
  Precedence precedence_;
  std::vector<Accesses> last_;
};

}  // namespace

Status check_order(const World& world, std::span<const Global> order, const Locations& locations) {
  OrderChecker checker(world, order, locations);
  for (const Global id : order) XYLEM_TRY(checker.visit(id));
  return {};
}

}  // namespace xylem::collectives::verifier
