// SPDX-License-Identifier: Apache-2.0
//
// What a benchmark reports: its environment and rows, as a table with nccl-tests' columns for
// people and as JSON for programs (schema in docs/benchmarks.md). A report read back serves as the
// baseline of a later one.
#pragma once

#include "bench/measure.h"
#include "bench/operation.h"
#include "xylem/base/quantity.h"
#include "xylem/base/status.h"
#include "xylem/runtime/types.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace xylem::tools {

/// Changes when an older reader would misread.
inline constexpr int kReportSchema = 1;

/// Where and with what the rows were measured.
struct BenchEnvironment {
  std::string cpu;                 ///< Model of rank 0's host.
  std::uint32_t cores = 0;         ///< That rank 0 may use.
  std::vector<std::string> hosts;  ///< Distinct ones.
  std::uint32_t ranks = 0;
  std::string launcher;
  std::map<std::string, std::set<std::string>>
      transports;  ///< Each with the lanes that carried bytes.
  std::string xylem_version, ucx_version;
  std::string commit;  ///< Empty if not built from a repository.
  bool back_to_back = false;
};

struct BenchRow {
  Operation operation = Operation::all_reduce;
  std::string algorithm;
  std::string transport;  ///< Those in use, joined by '+'.
  std::uint32_t ranks = 0;
  Bytes size;
  std::size_t count = 0;
  DataType type = DataType::float32;
  std::optional<RedOp> redop;
  std::optional<std::uint32_t> root;
  bool in_place = false;
  bool checked = true;
  Measurement measured;
  bool allocated = false;      ///< The buffers are of xylem::allocate().
  Bytes offset;                ///< Of the buffers from a page.
  std::optional<Parts> parts;  ///< Where they are uneven.
  /// Microseconds that the machine's memory would take, measured beside the row; for one host, and
  /// sizes that caches cannot hold.
  std::optional<double> limit;
  std::optional<double> ratio;  ///< Baseline's time over this one's: more than 1 is faster.
};

GBps algorithm_bandwidth(const BenchRow& row);
GBps bus_bandwidth(const BenchRow& row);

/// Of the command: 0 if every row is right, else 1.
int exit_status(const std::vector<BenchRow>& rows);

/// Lines that begin with '#'.
std::string header_text(const BenchEnvironment& environment);
std::string table_head(Operation operation, bool in_place, bool with_ratio);
std::string table_line(const BenchRow& row);

std::string to_json(const BenchEnvironment& environment, const std::vector<BenchRow>& rows);

/// Times of an earlier report.
class Baseline {
 public:
  /// `source` names the text in errors.
  static Result<Baseline> parse(const std::string& text, const std::string& source);
  static Result<Baseline> read(const std::string& path);

  /// The baseline's time over the row's, if it has a row of the same operation, shape, type and
  /// ranks.
  std::optional<double> ratio(const BenchRow& row) const;

 private:
  std::map<std::string, double> times_;
};

}  // namespace xylem::tools
