// SPDX-License-Identifier: Apache-2.0
//
// Claims 1 and 2. Steps are taken in one topological order; each read must follow the last write of
// its location, each write all reads since, or the last write. If all of these pairs are ordered by
// dependencies and messages, all others are by transitivity; and two unordered accesses always show
// up as such a pair.
#include "verify/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <queue>

namespace xylem::collectives::verifier {
namespace {

// Answers whether one step completes before another starts. Most pairs are direct predecessors; for
// the others the ancestors of the later one are explored backwards, as far as asked. Under a
// symmetry a way over messages may end at another image of the rank where it began, so only
// dependencies at the rank itself count.
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
    // The frontier gives up the latest first, so whatever lies after `earlier` has been seen then.
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
  std::vector<Global> seen_by_;  // The last `later` of which each step was found to be an ancestor.
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
    std::vector<Global> readers;  // Since the last write.
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
      if (reader == id) continue;  // A reduce into one of its sources.
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
