// SPDX-License-Identifier: Apache-2.0
//
// Reads the matrix as nvidia-smi printed it and people copied it: possibly with terminal codes,
// blanks instead of tabs, comments, and no legend.
#include "matrix.h"
#include "text.h"
#include "xylem/topology/compare.h"
#include "xylem/topology/readers.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace xylem::topology {
namespace {

constexpr std::size_t kMaxDevices = kMaxGpus + kMaxNics;

/// `line` without terminal codes ("\x1b[4m") and carriage returns.
std::string plain(std::string_view line) {
  std::string text;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\x1b') {
      while (i < line.size() && line[i] != 'm') ++i;
    } else if (line[i] != '\r') {
      text += line[i];
    }
  }
  return text;
}

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// The cells of a line, separated by tabs or, if copying has replaced the tabs, by two or more
/// blanks.
std::vector<std::string_view> cells_of(std::string_view line) {
  const std::string_view separator = line.find('\t') == std::string_view::npos ? "  " : "\t";
  std::vector<std::string_view> cells;
  for (std::size_t start = 0; start <= line.size();) {
    const auto end = std::min(line.find(separator, start), line.size());
    cells.push_back(trimmed(line.substr(start, end - start)));
    start = end + separator.size();
    if (separator == "  ") start = std::min(line.find_first_not_of(' ', end), line.size() + 1);
  }
  return cells;
}

bool is_numbered(std::string_view name, std::string_view kind) {
  return name.starts_with(kind) && parse_number<std::uint32_t>(name.substr(kind.size()));
}

class MatrixReader {
 public:
  MatrixReader(std::string_view text, std::string_view source) : text_(text), source_(source) {}

  Result<Matrix> read() {
    if (text_.size() > kMaxSourceBytes) return wrong("longer than a matrix may be");
    for (std::size_t start = 0; start < text_.size();) {
      const auto end = std::min(text_.find('\n', start), text_.size());
      ++line_;
      XYLEM_TRY(take(plain(text_.substr(start, end - start))));
      start = end + 1;
    }
    if (header_.empty()) {
      return failure(Code::invalid_argument,
                     fmt::format("{}: no matrix (a line of GPU0, GPU1, … as nvidia-smi topo -m "
                                 "prints it)",
                                 source_));
    }
    name_nics();
    return std::move(matrix_);
  }

 private:
  Status wrong(std::string_view rule) const {
    return failure(Code::invalid_argument, fmt::format("{}:{}: {}", source_, line_, rule));
  }

  Status take(const std::string& line) {
    const std::string_view content = trimmed(line);
    if (content.empty() || content.front() == '#') return Status::ok();
    const auto colon = content.find(':');
    if (colon != std::string_view::npos && is_numbered(content.substr(0, colon), "NIC")) {
      legend_[std::string(content.substr(0, colon))] = clean_text(content.substr(colon + 1));
      return Status::ok();
    }
    auto cells = cells_of(line);
    // If copying has replaced the tabs, the empty corner is not a cell.
    const bool has_corner = cells.front().empty();
    if (header_.empty()) return is_header(cells) ? take_header(cells, has_corner) : Status::ok();
    if (by_name_.contains(std::string(cells.front()))) return take_row(cells);
    return Status::ok();
  }

  /// A heading row has an empty corner. Without tabs, the corner may be missing. A heading row is
  /// then recognized by the absence of an "X", which every other row has in the column of its own
  /// device.
  static bool is_header(const std::vector<std::string_view>& cells) {
    const bool names_gpu =
        std::ranges::any_of(cells, [](std::string_view cell) { return is_numbered(cell, "GPU"); });
    return names_gpu && (cells.front().empty() || std::ranges::find(cells, "X") == cells.end());
  }

  Status take_header(const std::vector<std::string_view>& cells, bool has_corner) {
    if (cells.size() > kMaxDevices) return wrong(fmt::format("more than {} columns", kMaxDevices));
    for (std::size_t i = has_corner ? 1 : 0; i < cells.size(); ++i) {
      std::string heading = clean_text(cells[i]);
      const bool is_device = !heading.empty() && heading.find(' ') == std::string::npos;
      if (is_device) {
        if (!by_name_.emplace(heading, matrix_.rows.size()).second) {
          return wrong(fmt::format("{} is here twice", excerpt(heading)));
        }
        matrix_.rows.push_back({heading, {}, {}, {}});
      }
      const bool is_read = is_device || heading == kCpuAffinity || heading == kNumaAffinity;
      header_.push_back(std::move(heading));
      if (is_read) columns_ = header_.size();
    }
    return Status::ok();
  }

  Status take_row(const std::vector<std::string_view>& cells) {
    Matrix::Row& row = matrix_.rows[by_name_.find(std::string(cells.front()))->second];
    // nvidia-smi prints an empty cell before the column "GPU NUMA ID", and tabs behind NICs.
    std::size_t count = cells.size() - 1;
    while (count > 0 && cells[count].empty()) --count;
    if (count > header_.size() && columns_ == header_.size()) {
      return wrong(fmt::format("{} has {} cells below {} headings", row.name, count, columns_));
    }
    for (std::size_t i = 1; i <= std::min(count, columns_); ++i) {
      const std::string& heading = header_[i - 1];
      if (heading == kCpuAffinity) row.cpus = clean_text(cells[i]);
      if (heading == kNumaAffinity) row.numa = clean_text(cells[i]);
      const auto column = by_name_.find(heading);
      if (column == by_name_.end()) continue;
      // Allocates only as many cells as the line has: a forged heading with thousands of columns
      // must not make the matrix allocate the square of this number of cells.
      row.cells.resize(std::max(row.cells.size(), column->second + 1));
      row.cells[column->second] = clean_text(cells[i]);
      matrix_.shows_nvlink |= cells[i].starts_with("NV") || cells[i] == "XGMI";
    }
    return Status::ok();
  }

  /// Names the NICs as the legend does.
  void name_nics() {
    for (Matrix::Row& row : matrix_.rows) {
      if (is_numbered(row.name, "GPU")) continue;
      const auto name = legend_.find(row.name);
      if (name != legend_.end()) row.name = name->second;
      matrix_.has_nics |= !is_numbered(row.name, "NIC");
    }
  }

  std::string_view text_;
  std::string_view source_;
  std::size_t line_ = 0;
  std::vector<std::string> header_;  ///< Headings after the corner.
  std::size_t columns_ = 0;  ///< How many headings there are up to the last one that is read.
  std::map<std::string, std::size_t> by_name_;  ///< For each heading, the number of its row.
  std::map<std::string, std::string> legend_;
  Matrix matrix_;
};

bool is_gpu_row(const Matrix::Row& row) { return is_numbered(row.name, "GPU"); }

/// The indices of the rows that can be compared, by the name of the row.
using Places = std::map<std::string_view, std::size_t>;
Places places_of(const Matrix& matrix, bool with_nics) {
  Places places;
  for (std::size_t i = 0; i < matrix.rows.size(); ++i) {
    const Matrix::Row& row = matrix.rows[i];
    if (is_gpu_row(row) || with_nics) places.emplace(row.name, i);
  }
  return places;
}

/// Compares two matrices row by row.
class Comparison {
 public:
  Comparison(const Matrix& there, const Matrix& here)
      : there_(there),
        here_(here),
        theirs_(places_of(there, there.has_nics)),
        ours_(places_of(here, there.has_nics)) {}

  std::vector<MatrixDifference> run() {
    for (const Matrix::Row& row : there_.rows) {
      if (theirs_.contains(row.name)) compare_row(row);
    }
    for (const Matrix::Row& row : here_.rows) {
      if (ours_.contains(row.name) && !theirs_.contains(row.name))
        add(row.name, row.name, "absent", "X");
    }
    return std::move(differences_);
  }

 private:
  void compare_row(const Matrix::Row& row) {
    const auto mine = ours_.find(row.name);
    if (mine == ours_.end()) return add(row.name, row.name, "X", "absent");
    const Matrix::Row& own = here_.rows[mine->second];
    for (std::size_t column = 0; column < row.cells.size(); ++column) {
      const std::string& name = there_.rows[column].name;
      const auto across = theirs_.contains(name) ? ours_.find(name) : ours_.end();
      if (across != ours_.end()) add(row.name, name, row.cells[column], own.cells[across->second]);
    }
    if (!is_gpu_row(row)) return;
    add(row.name, kCpuAffinity, row.cpus, own.cpus);
    add(row.name, kNumaAffinity, row.numa, own.numa);
  }

  void add(std::string_view row,
           std::string_view column,
           const std::string& a,
           const std::string& b) {
    if (!a.empty() && a != b) differences_.push_back({std::string(row), std::string(column), a, b});
  }

  const Matrix& there_;
  const Matrix& here_;
  Places theirs_, ours_;
  std::vector<MatrixDifference> differences_;
};

}  // namespace

Result<Matrix> read_matrix(std::string_view text, std::string_view source) {
  return MatrixReader(text, source).read();
}

Result<std::vector<MatrixDifference>> compare_matrix(const Topology& topology,
                                                     std::string_view text,
                                                     std::string_view source) {
  XYLEM_TRY(const Matrix there, read_matrix(text, source));
  const Matrix here = matrix_of(topology, !there.shows_nvlink);
  return Comparison(there, here).run();
}

}  // namespace xylem::topology
