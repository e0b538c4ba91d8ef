// SPDX-License-Identifier: Apache-2.0
//
// Reads and writes JSON. The schema is in docs/topology.md, and the fields are in json_fields.h.
// The reader refuses unknown keys; otherwise a misspelt optional field would be lost silently.
#include "enum_names.h"
#include "json_fields.h"
#include "json_parts.h"
#include "source.h"
#include "text.h"
#include "xylem/base/check.h"
#include "xylem/topology/fingerprint.h"
#include "xylem/topology/path.h"
#include "xylem/topology/readers.h"
#include "xylem/topology/writers.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <limits>
#include <set>
#include <type_traits>

namespace xylem::topology {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kVersionKey = "xylem_topology";
constexpr const char* kDerivedKey = "derived";
/// The schema nests seven levels deep. The number of values is limited because a DOM takes many
/// times the memory of its text.
constexpr std::size_t kMaxDepth = 16;
constexpr std::size_t kMaxValues = 4'000'000;

// ---- writing ----

template <typename T>
Json written(const T& value);
template <typename T>
Json written(const std::vector<T>& list);
template <typename T>
Json written(const std::optional<T>& value);

/// Collects the fields of one object. Absent, empty and false values are left out.
class WritingArchive {
 public:
  template <typename T>
  void operator()(const char* key, const T& value) {
    // Numbers, enumerations and addresses are always written, since their T{} is a value like any
    // other and does not mean that the field is absent.
    constexpr bool kAlways = (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) ||
                             std::is_enum_v<T> || std::is_same_v<T, PciAddress> ||
                             std::is_same_v<T, NodeRef>;
    if (!kAlways && value == T{}) return;
    object_[key] = written(value);
  }

  Json take() { return std::move(object_); }

 private:
  Json object_ = Json::object();
};

template <typename T>
Json written(const std::vector<T>& list) {
  Json array = Json::array();
  for (const T& value : list) array.push_back(written(value));
  return array;
}

template <typename T>
Json written(const std::optional<T>& value) {
  XYLEM_CHECK(value.has_value());  // WritingArchive leaves out absent values.
  return written(*value);
}

template <typename T>
Json written(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return name_of(value);
  } else if constexpr (std::is_same_v<T, GBps> || std::is_same_v<T, Bytes>) {
    return value.value;
  } else if constexpr (std::is_same_v<T, PciAddress> || std::is_same_v<T, NodeRef> ||
                       std::is_same_v<T, CpuSet>) {
    return value.to_string();
  } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
    return value;
  } else {
    WritingArchive archive;
    T copy = value;  // fields() also serves the reader, so it takes a mutable reference.
    fields(archive, copy);
    return archive.take();
  }
}

Json derived_facts(const Topology& topology) {
  Json derived = Json::object();
  derived["fingerprint"] = fingerprint(topology).to_string();
  Json gpus = Json::array();
  for (std::uint32_t i = 0; i < topology.gpus().size(); ++i) {
    const NearestNics nearest = nearest_nics(topology, i);
    Json names = Json::array();
    for (const std::uint32_t nic : nearest.nics) names.push_back(topology.nics()[nic].name);
    gpus.push_back({{"gpu", i}, {"path_class", name(nearest.path_class)}, {"nics", names}});
  }
  derived["nearest_nics"] = std::move(gpus);
  return derived;
}

// ---- reading ----

/// The first error and its place in the document.
class Trouble {
 public:
  bool none() const { return status_.is_ok(); }
  const Status& status() const { return status_; }
  void add(const std::string& place, const std::string& rule) {
    if (none()) {
      status_ =
          failure(Code::invalid_argument, fmt::format("{}: {}", place.empty() ? "/" : place, rule));
    }
  }

 private:
  Status status_;
};

template <typename T>
void read_value(const Json& json, const std::string& place, Trouble& trouble, T& value);

/// Reads the fields of one object and records their keys, to detect unknown keys.
class ReadingArchive {
 public:
  ReadingArchive(const Json& object, const std::string& place, Trouble& trouble)
      : object_(object), place_(place), trouble_(trouble) {}

  template <typename T>
  void operator()(const char* key, T& value) {
    known_.insert(key);
    if (!trouble_.none()) return;
    const auto at = object_.find(key);
    if (at != object_.end()) {
      read_value(*at, place_ + "/" + key, trouble_, value);
    } else if (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
      trouble_.add(place_ + "/" + key, "missing; every number that is not optional must be there");
    }
  }

  void refuse_unknown() {
    for (const auto& [key, value] : object_.items()) {
      if (!known_.contains(key))
        trouble_.add(place_ + "/" + excerpt(key), "no such field; remove it");
    }
  }

 private:
  const Json& object_;
  const std::string& place_;
  Trouble& trouble_;
  std::set<std::string, std::less<>> known_;
};

template <typename T>
void read_value(const Json& json,
                const std::string& place,
                Trouble& trouble,
                std::optional<T>& value) {
  T inner{};
  read_value(json, place, trouble, inner);
  value = std::move(inner);
}

template <typename T>
void read_value(const Json& json,
                const std::string& place,
                Trouble& trouble,
                std::vector<T>& list) {
  if (!json.is_array()) return trouble.add(place, "must be an array");
  for (const Json& element : json) {
    T value{};
    read_value(element, fmt::format("{}/{}", place, list.size()), trouble, value);
    if (!trouble.none()) return;
    list.push_back(std::move(value));
  }
}

template <typename T>
void read_integer(const Json& json, const std::string& place, Trouble& trouble, T& value) {
  constexpr std::uint64_t kMost = std::numeric_limits<T>::max();
  if (!json.is_number_unsigned() || json.get<std::uint64_t>() > kMost) {
    return trouble.add(place, fmt::format("must be an integer from 0 to {}", kMost));
  }
  value = static_cast<T>(json.get<std::uint64_t>());
}

template <typename T>
void read_text(const Json& json, const std::string& place, Trouble& trouble, T& value) {
  if (!json.is_string()) return trouble.add(place, "must be a string");
  const auto& text = json.get_ref<const std::string&>();
  if constexpr (std::is_same_v<T, std::string>) {
    value = clean_text(text);
  } else if constexpr (std::is_enum_v<T>) {
    const auto known = enumerator_of<T>(text);
    if (!known)
      return trouble.add(place, fmt::format("\"{}\" is none of {}", excerpt(text),
                                            fmt::join(names_of(T{}), ", ")));
    value = *known;
  } else {
    auto parsed = T::parse(text);
    if (!parsed) return trouble.add(place, std::string(parsed.status().message()));
    value = std::move(*parsed);
  }
}

template <typename T>
void read_value(const Json& json, const std::string& place, Trouble& trouble, T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    if (!json.is_boolean()) return trouble.add(place, "must be true or false");
    value = json.get<bool>();
  } else if constexpr (std::is_same_v<T, GBps>) {
    read_value(json, place, trouble, value.value);
  } else if constexpr (std::is_same_v<T, Bytes>) {
    read_integer(json, place, trouble, value.value);
  } else if constexpr (std::is_floating_point_v<T>) {
    if (!json.is_number()) return trouble.add(place, "must be a number");
    value = json.get<T>();
  } else if constexpr (std::is_arithmetic_v<T>) {
    read_integer(json, place, trouble, value);
  } else if constexpr (std::is_enum_v<T> || std::is_same_v<T, std::string> ||
                       std::is_same_v<T, CpuSet> || std::is_same_v<T, PciAddress> ||
                       std::is_same_v<T, NodeRef>) {
    read_text(json, place, trouble, value);
  } else {
    if (!json.is_object()) return trouble.add(place, "must be an object");
    ReadingArchive archive(json, place, trouble);
    fields(archive, value);
    archive.refuse_unknown();
  }
}

/// Reads a single field, chosen by its key.
class PartArchive {
 public:
  PartArchive(std::string_view key, const Json& part, Trouble& trouble)
      : key_(key), part_(part), trouble_(trouble) {}

  template <typename T>
  void operator()(const char* key, T& value) {
    if (key != key_) return;
    was_found_ = true;
    value = T();
    read_value(part_, "/" + std::string(key), trouble_, value);
  }

  bool was_found() const { return was_found_; }

 private:
  std::string_view key_;
  const Json& part_;
  Trouble& trouble_;
  bool was_found_ = false;
};

/// Counts brackets and values before the parser allocates anything for them.
bool is_too_large(std::string_view text) {
  std::size_t depth = 0;
  std::size_t values = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    if (c == '[' || c == '{') ++depth;
    if ((c == ']' || c == '}') && depth > 0) --depth;
    if (c == ',' || c == '[' || c == '{') ++values;
    if (depth > kMaxDepth || values > kMaxValues) return true;
  }
  return false;
}

Result<Machine> machine_from(Json& document, const std::string& source) {
  const auto wrong = [&](std::string_view rule) {
    return failure(Code::invalid_argument, fmt::format("{}: {}", source, rule));
  };
  const auto version = document.is_object() ? document.find(kVersionKey) : document.end();
  if (!document.is_object() || version == document.end()) {
    return wrong(
        fmt::format("no topology of Xylem (the key \"{}\" holds its version)", kVersionKey));
  }
  if (*version != kJsonVersion) {
    return wrong(fmt::format("version {} of the schema; this library reads {}",
                             excerpt(version->dump()), kJsonVersion));
  }
  document.erase(kVersionKey);
  document.erase(kDerivedKey);
  Trouble trouble;
  Machine machine;
  read_value(document, std::string(), trouble, machine);
  if (!trouble.none()) return wrong(trouble.status().message());
  return machine;
}

}  // namespace

std::map<std::string, std::string> json_parts(const Machine& machine) {
  std::map<std::string, std::string> parts;
  const Json all = written(machine);
  for (const auto& [key, value] : all.items()) {
    parts[key] = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  return parts;
}

Status replace_part(Machine& machine, std::string_view key, std::string_view text) {
  const auto wrong = [&](std::string_view rule) {
    return failure(Code::invalid_argument, fmt::format("{}: {}", excerpt(key), rule));
  };
  if (is_too_large(text)) return wrong("larger or nested deeper than a topology may be");
  const Json part = Json::parse(text, nullptr, false);
  if (part.is_discarded()) return wrong("not well-formed JSON");
  Trouble trouble;
  PartArchive archive(key, part, trouble);
  fields(archive, machine);
  if (!trouble.none()) return trouble.status();
  return archive.was_found() ? Status::ok() : wrong("no such field");
}

std::string to_json(const Topology& topology) {
  Json document = Json::object();
  document[kVersionKey] = kJsonVersion;
  document.update(written(topology.machine()));
  document[kDerivedKey] = derived_facts(topology);
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Topology> read_json(std::string_view text, std::string_view source) {
  const std::string name(source);
  if (text.size() > kMaxSourceBytes || is_too_large(text)) {
    return failure(
        Code::invalid_argument,
        fmt::format("{}: larger or nested deeper than a topology may be ({} bytes, {} values, {} "
                    "levels)",
                    name, kMaxSourceBytes, kMaxValues, kMaxDepth));
  }
  Json document = Json::parse(text, nullptr, false);
  if (document.is_discarded()) {
    return failure(Code::invalid_argument, fmt::format("{}: not well-formed JSON", name));
  }
  XYLEM_TRY(auto machine, machine_from(document, name));
  return create_from(name, std::move(machine));
}

}  // namespace xylem::topology
