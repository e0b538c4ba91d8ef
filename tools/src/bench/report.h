// SPDX-License-Identifier: Apache-2.0
//
// The report of a benchmark: its environment and rows, as a table with the columns of nccl-tests
// for people, and as JSON for programs (schema in docs/bench_files.md). An earlier report can be
// read back as the baseline of a later one.
#pragma once

#include "bench/measure.h"
#include "bench/operation.h"
#include "xylem/base/quantity.h"
#include "xylem/base/status.h"
#include "xylem/runtime/counters.h"
#include "xylem/runtime/types.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace xylem::tools {

/// The version of the form of reports. It changes when a program for the former version would
/// misread a report.
inline constexpr int kReportSchema = 1;

/// The circumstances of a measurement.
struct BenchEnvironment {
  std::string cpu;                 ///< Model of rank 0's host.
  std::uint32_t cores = 0;         ///< Number of cores that rank 0 may use.
  std::vector<std::string> hosts;  ///< The names of the hosts, each once.
  std::uint32_t ranks = 0;
  std::string launcher;
  /// Each transport with the lanes that carried bytes.
  std::map<std::string, std::set<std::string>> transports;
  std::string xylem_version;
  std::string ucx_version;  ///< Empty if UCX is not used.
  std::string commit;       ///< Empty if Xylem was not built from a repository.
  bool back_to_back = false;
  std::string buffers;  ///< Where buffers are, if not on the host: "CUDA devices, …".
};

struct BenchRow {
  Operation operation = Operation::all_reduce;
  std::string algorithm;
  /// The time that the algorithm is predicted to take; absent if nothing predicts it, as on
  /// devices.
  std::optional<double> predicted_us;
  std::string transport;  ///< The transports in use, joined by '+'.
  std::uint32_t ranks = 0;
  Bytes size;
  std::size_t count = 0;
  DataType type = DataType::float32;
  std::optional<RedOp> redop;
  std::optional<std::uint32_t> root;
  bool in_place = false;
  bool checked = true;
  Measurement measured;
  bool allocated = false;      ///< The buffers come from xylem::allocate().
  bool on_device = false;      ///< The buffers are in memory of CUDA devices.
  bool on_stream = false;      ///< The calls were made in the order of streams.
  Bytes offset;                ///< Distance of the buffers from the start of their page.
  std::optional<Parts> parts;  ///< How the data was divided, for operations on uneven parts.
  /// The shortest time in microseconds in which the machine's memory can move what the call reads
  /// and writes: least_time(), measured just before the call. Empty on several hosts, for buffers
  /// on devices, for sizes that may fit in caches, and if the call needs no such traffic.
  std::optional<double> limit;
  /// What this rank has done in one more call, which was not timed. Empty for buffers on the host.
  std::optional<Counters> used;
  /// The baseline's time divided by this row's; more than 1 means faster.
  std::optional<double> ratio;
};

GBps algorithm_bandwidth(const BenchRow& row);
GBps bus_bandwidth(const BenchRow& row);

/// The exit status of the command: 0 if every row is right, otherwise 1.
int exit_status(const std::vector<BenchRow>& rows);

/// Lines that begin with '#'.
std::string header_text(const BenchEnvironment& environment);
std::string table_head(Operation operation, bool in_place, bool with_ratio);
std::string table_line(const BenchRow& row);

/// The mean of the rows' bus bandwidths, in one line that begins with '#'. `rows` has at least one.
std::string average_line(std::span<const BenchRow> rows);
/// A line for BenchRow::used.
std::string counters_line(const Counters& used);

/// `is_complete` is false if the session ended before all rows were measured.
std::string to_json(const BenchEnvironment& environment,
                    const std::vector<BenchRow>& rows,
                    bool is_complete = true);
/// A line with the names of the columns, then one for each row. The columns are the fields of the
/// rows in JSON; null is an empty field.
std::string to_csv(const std::vector<BenchRow>& rows);

/// The times of an earlier report.
class Baseline {
 public:
  /// `source` names the text in errors.
  static Result<Baseline> parse(const std::string& text, const std::string& source);
  static Result<Baseline> read(const std::string& path);

  /// The baseline's time divided by the row's, if the baseline has a row with the same operation,
  /// shape, type and ranks.
  std::optional<double> ratio(const BenchRow& row) const;

 private:
  std::map<std::string, double> times_;
};

}  // namespace xylem::tools
