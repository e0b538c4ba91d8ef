// SPDX-License-Identifier: Apache-2.0
//
// Parses the one-line description, clause by clause.
#include "synthetic/description.h"
#include "text.h"
#include "xylem/topology/readers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace xylem::topology::synthetic {
namespace {

/// The largest size in bytes. A description has about a dozen clauses, so a longer text is no
/// description.
constexpr std::size_t kMaxDescription = 4096;
constexpr std::uint32_t kMostThings = 4096;
constexpr std::uint32_t kMostLinksOfAPair = 64;
/// The number of NVLinks of a GPU if the clause "nvswitch" states none: that of an H100 or B200.
constexpr std::uint32_t kSwitchedLinks = 18;

enum class Noun : std::uint8_t { hosts, packages, numa, cores, switches, gpus, nics };

/// Nouns in the singular.
constexpr std::array<std::pair<std::string_view, Noun>, 8> kNouns{{{"host", Noun::hosts},
                                                                   {"package", Noun::packages},
                                                                   {"socket", Noun::packages},
                                                                   {"numa", Noun::numa},
                                                                   {"core", Noun::cores},
                                                                   {"switch", Noun::switches},
                                                                   {"gpu", Noun::gpus},
                                                                   {"nic", Noun::nics}}};

constexpr std::array<std::pair<std::string_view, Per>, 6> kPlaces{{{"host", Per::host},
                                                                   {"package", Per::package},
                                                                   {"socket", Per::package},
                                                                   {"numa", Per::numa},
                                                                   {"switch", Per::pcie_switch},
                                                                   {"gpu", Per::gpu}}};

constexpr std::array<std::pair<std::string_view, Fabric>, 4> kShapes{{{"mesh", Fabric::mesh},
                                                                      {"ring", Fabric::ring},
                                                                      {"pairs", Fabric::pairs},
                                                                      {"cube", Fabric::cube}}};

template <typename Value, std::size_t N>
std::optional<Value> lookup(const std::array<std::pair<std::string_view, Value>, N>& words,
                            std::string_view word) {
  const auto found = std::ranges::find(words, word, &std::pair<std::string_view, Value>::first);
  return found == words.end() ? std::nullopt : std::optional(found->second);
}

std::optional<Noun> noun_of(std::string_view word) {
  if (const auto noun = lookup(kNouns, word)) return noun;
  if (word == "switches") return Noun::switches;
  if (word.ends_with('s')) word.remove_suffix(1);
  return lookup(kNouns, word);
}

/// Whether things of this kind may be counted for each `per`, as in "2 gpus/switch".
bool may_count(Noun noun, Per per) {
  switch (noun) {
    case Noun::hosts:
    case Noun::packages: return per == Per::host;
    case Noun::numa:
    case Noun::cores: return per == Per::host || per == Per::package;
    case Noun::switches: return per <= Per::numa;
    case Noun::gpus: return per <= Per::pcie_switch;
    case Noun::nics: return true;
  }
  return false;
}

std::vector<std::string_view> split(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> parts;
  for (auto start = text.find_first_not_of(separators); start != std::string_view::npos;
       start = text.find_first_not_of(separators)) {
    text.remove_prefix(start);
    parts.push_back(text.substr(0, text.find_first_of(separators)));
    text.remove_prefix(parts.back().size());
  }
  return parts;
}

class Parser {
 public:
  explicit Parser(std::string_view source) : source_(source) {}

  Result<Description> parse(std::string_view text) {
    if (text.size() > kMaxDescription) {
      return wrong(text, fmt::format("it has more than {} bytes", kMaxDescription));
    }
    for (std::string_view clause : split(text, ",\r\n")) {
      while (clause.ends_with(' ') || clause.ends_with('\t')) clause.remove_suffix(1);
      std::string lower(clause);
      std::ranges::transform(lower, lower.begin(), [](char c) {
        return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
      });
      const auto words = split(lower, " \t");
      if (!words.empty()) XYLEM_TRY(take(clause, words));
    }
    if (!read_any_) return wrong(text, "it is empty; say \"8 gpus, nvswitch\", for one");
    return description_;
  }

 private:
  using Words = std::vector<std::string_view>;

  Status wrong(std::string_view clause, std::string_view rule) const {
    return failure(Code::invalid_argument,
                   fmt::format("{}: \"{}\": {}", source_, excerpt(clause), rule));
  }

  Status take(std::string_view clause, const Words& words) {
    read_any_ = true;
    if (words[0] == "pcie") return once(Clause::pcie, clause, [&] { return pcie(clause, words); });
    if (words[0] == "nvswitch") {
      return once(Clause::fabric, clause, [&] { return nvswitch(clause, words); });
    }
    if (words[0] == "nvlink" || words[0] == "xgmi") {
      return once(Clause::fabric, clause, [&] { return links(clause, words); });
    }
    return things(clause, words);
  }

  /// The kinds of clauses, to detect repeated ones. Clauses that count things have the numbers from
  /// `things` on, in the order of Noun.
  enum class Clause : std::uint8_t { pcie, fabric, things };

  template <typename Take>
  Status once(Clause kind, std::string_view clause, Take take) {
    if (!seen_.insert(static_cast<unsigned>(kind)).second) {
      return wrong(clause, "this kind of clause was given before");
    }
    return take();
  }

  /// Parses "2 gpus/switch" and "1 nic/gpu 400 Gb/s".
  Status things(std::string_view clause, const Words& words) {
    constexpr std::string_view kRule =
        "neither a number of packages, numa, cores, switches, gpus or nics (such as 2 gpus/switch) "
        "nor nvswitch, nvlink, xgmi or pcie";
    const auto number = parse_number<std::uint32_t>(words[0]);
    if (!number || words.size() < 2) return wrong(clause, kRule);
    const auto slash = words[1].find('/');
    const auto noun = noun_of(words[1].substr(0, slash));
    if (!noun) return wrong(clause, kRule);
    if (*number > kMostThings) return wrong(clause, fmt::format("more than {}", kMostThings));
    const unsigned seen = static_cast<unsigned>(Clause::things) + static_cast<unsigned>(*noun);
    if (!seen_.insert(seen).second) return wrong(clause, "this kind of clause was given before");
    Count count{*number, default_place(*noun)};
    if (slash != std::string_view::npos) {
      const auto per = lookup(kPlaces, words[1].substr(slash + 1));
      if (!per || !may_count(*noun, *per)) {
        return wrong(clause, "these are not counted for each of that");
      }
      count.per = *per;
    }
    if (words.size() > 2 && *noun != Noun::nics) return wrong(clause, "too many words");
    if (words.size() > 2) XYLEM_TRY(nic_rate(clause, words));
    return set(clause, *noun, count);
  }

  static Per default_place(Noun noun) {
    return noun == Noun::numa || noun == Noun::cores ? Per::package : Per::host;
  }

  Status nic_rate(std::string_view clause, const Words& words) {
    const auto gigabits = parse_real(words[2]);
    // The rate must be in bits: gigabytes would be eight times as much.
    const bool is_in_bits = words.back() == "gb/s" && !clause.ends_with("B/s");
    if (!gigabits || *gigabits <= 0 || words.size() != 4 || !is_in_bits) {
      return wrong(clause, "a NIC's rate is in gigabits, such as 400 Gb/s");
    }
    description_.nic_rate = GBps{*gigabits / 8};
    return Status::ok();
  }

  Status set(std::string_view clause, Noun noun, Count count) {
    const bool may_be_none = noun == Noun::gpus || noun == Noun::nics;
    if (count.each == 0 && !may_be_none) return wrong(clause, "there is at least one");
    switch (noun) {
      case Noun::hosts:
        if (count.each == 1) break;
        return wrong(clause, "a topology is one host; give plan its number by --hosts");
      case Noun::packages: description_.packages = count.each; break;
      case Noun::numa: description_.numa = count; break;
      case Noun::cores: description_.cores = count; break;
      case Noun::switches: description_.switches = count; break;
      case Noun::gpus: description_.gpus = count; break;
      case Noun::nics: description_.nics = count; break;
    }
    return Status::ok();
  }

  /// Parses "pcie gen4 x8"; both words after pcie are optional.
  Status pcie(std::string_view clause, const Words& words) {
    constexpr std::array kSpeeds{2.5, 5.0, 8.0, 16.0, 32.0, 64.0, 128.0};
    double speed = description_.pcie_speed;
    std::uint32_t width = description_.pcie_width;
    for (std::size_t i = 1; i < words.size(); ++i) {
      std::string_view word = words[i];
      const bool is_width = word.starts_with('x');
      const bool is_generation = word.starts_with("gen");
      if (is_width || is_generation) word.remove_prefix(is_width ? 1 : 3);
      const auto number = parse_number<std::uint32_t>(word);
      if (is_width && number && *number >= 1 && *number <= 32) {
        width = *number;
      } else if (is_generation && number && *number >= 1 && *number <= kSpeeds.size()) {
        speed = kSpeeds[*number - 1];
      } else {
        return wrong(clause,
                     "PCIe is written as gen1 to gen7 and x1 to x32, such as pcie gen5 x16");
      }
    }
    if (words.size() == 1) return wrong(clause, "it does not say which, such as pcie gen5 x16");
    description_.pcie_speed = speed;
    description_.pcie_width = width;
    return Status::ok();
  }

  Status nvswitch(std::string_view clause, const Words& words) {
    description_.fabric = Fabric::nvswitch;
    description_.link_kind = LinkKind::nvlink;
    description_.links = kSwitchedLinks;
    return words.size() == 1 ? Status::ok() : link_count(clause, words, 1);
  }

  /// Parses "nvlink mesh x2" and "xgmi mesh".
  Status links(std::string_view clause, const Words& words) {
    const auto shape = words.size() < 2 ? std::nullopt : lookup(kShapes, words[1]);
    const bool is_nvlink = words[0] == "nvlink";
    if (!shape || (*shape == Fabric::cube && (!is_nvlink || words.size() > 2))) {
      return wrong(clause,
                   "links are written as nvlink or xgmi with mesh, ring or pairs and their "
                   "number (such as nvlink mesh x4), or as nvlink cube");
    }
    description_.fabric = *shape;
    description_.link_kind = is_nvlink ? LinkKind::nvlink : LinkKind::xgmi;
    description_.links = 1;
    return words.size() == 2 ? Status::ok() : link_count(clause, words, 2);
  }

  Status link_count(std::string_view clause, const Words& words, std::size_t at) {
    std::string_view word = words[at];
    if (word.starts_with('x')) word.remove_prefix(1);
    const auto number = parse_number<std::uint32_t>(word);
    if (words.size() != at + 1 || !number || *number < 1 || *number > kMostLinksOfAPair) {
      return wrong(clause, fmt::format("the number of links is x1 to x{}", kMostLinksOfAPair));
    }
    description_.links = *number;
    return Status::ok();
  }

  std::string source_;
  Description description_;
  bool read_any_ = false;
  std::set<unsigned> seen_;
};

}  // namespace

Result<Description> parse(std::string_view text, std::string_view source) {
  return Parser(source).parse(text);
}

}  // namespace xylem::topology::synthetic
