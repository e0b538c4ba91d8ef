// SPDX-License-Identifier: Apache-2.0
//
// The course of a session: connect, check the options, warm up the connections, measure row by row,
// report, leave.
#include "bench/session.h"

#include "bench/agreement.h"
#include "bench/bandwidth.h"
#include "bench/call.h"
#include "bench/environment.h"
#include "bench/measure.h"
#include "bench/place.h"
#include "bench/progress_bar.h"
#include "bench/report.h"
#include "bench/reports.h"
#include "bench/selection.h"
#include "exit_code.h"
#include "xylem/xylem.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <optional>
#include <span>
#include <system_error>
#include <utility>

namespace xylem::tools {
namespace {

class Session {
 public:
  Session(const Runtime& runtime, const BenchOptions& options, Reports& reports)
      : runtime_(runtime), options_(options), reports_(reports), world_(runtime.world()) {}

  /// The exit status, or the reason why the session ended early.
  Result<int> run();

 private:
  bool first() const { return world_.rank() == 0; }
  /// Prints on rank 0, to standard output or, if a report goes there, to standard error.
  void print(std::string_view text);
  /// Whether rank 0 has failed to print a text. Collective.
  Result<bool> is_output_lost() const;

  Status prepare();
  Status choose_place();
  Status open_files();
  /// Returns false, without measuring the remaining rows, if is_output_lost().
  Result<bool> measure_operation(Operation operation, ProgressBar& progress);
  Result<BenchRow> measure_row(Operation operation, Bytes size, Call& call);
  Result<std::optional<double>> measure_limit(const BenchRow& row);
  std::vector<Bytes> sizes_of(Operation operation) const;
  /// Writes the reports. Returns the exit status.
  Result<int> report();

  const Runtime& runtime_;
  const BenchOptions& options_;
  Reports& reports_;
  Place place_;
  Communicator world_, control_;
  Selection selection_;
  BenchEnvironment environment_;
  std::optional<Baseline> baseline_;
  std::optional<Copies> copies_;
  int output_error_ = 0;  ///< The errno of the first failure to print; 0 if there was none.
  std::vector<BenchRow> rows_;
};

Result<int> Session::run() {
  XYLEM_TRY(prepare());
  std::string header = header_text(environment_);
  for (const std::string& reason : selection_.left_out) header += fmt::format("# {}\n", reason);
  print(header);
  std::size_t rows = 0;
  for (const Operation operation : selection_.operations) rows += sizes_of(operation).size();
  ProgressBar progress(rows, first());
  for (const Operation operation : selection_.operations) {
    XYLEM_TRY(const bool is_complete, measure_operation(operation, progress));
    if (!is_complete) return kExitOutput;
  }
  progress.clear();
  return report();
}

void Session::print(std::string_view text) {
  if (!first() || output_error_ != 0) return;
  std::FILE* const to = options_.json == "-" || options_.csv == "-" ? stderr : stdout;
  if (std::fwrite(text.data(), 1, text.size(), to) == text.size() && std::fflush(to) == 0) return;
  output_error_ = errno;
  fmt::print(stderr, "xylem bench: the output cannot be written: {}\n",
             std::generic_category().message(output_error_));
}

Result<bool> Session::is_output_lost() const {
  XYLEM_TRY(const std::uint64_t error,
            from_first(control_, static_cast<std::uint64_t>(output_error_)));
  return error != 0;
}

Status Session::prepare() {
  XYLEM_TRY(selection_, select_operations(options_, world_.size()));
  XYLEM_TRY(control_, world_.duplicate());
  // Only rank 0 opens files, but all ranks must end if this fails.
  Status files = first() ? open_files() : Status();
  XYLEM_TRY(const std::uint64_t usable, from_first(control_, files ? 1 : 0));
  if (!files) return files;
  if (usable == 0) return failure(Code::invalid_argument, "rank 0 cannot use its files");
  XYLEM_TRY(choose_place());
  XYLEM_TRY(environment_, find_environment(runtime_, control_, options_));
  if (place_.orders_calls()) {
    environment_.buffers +=
        world_.binding() == Binding::mesh ? ", by the devices alone" : ", by the CPU";
  }
  reports_.describe(environment_);
  return {};
}

/// Fails on all ranks if one rank cannot use its device.
Status Session::choose_place() {
  auto place = Place::choose(options_, runtime_.local_rank());
  XYLEM_TRY(const auto reasons,
            texts_of(control_, place ? std::string() : std::string(place.status().message())));
  for (std::size_t rank = 0; rank < reasons.size(); ++rank) {
    if (reasons[rank].empty()) continue;
    return failure(Code::unsupported, fmt::format("rank {}: {}", rank, reasons[rank]));
  }
  place_ = *std::move(place);
  return place_.memory().kind == MemoryKind::host ? Status()
                                                  : world_.bind(place_.memory()).status();
}

Status Session::open_files() {
  if (!options_.baseline.empty()) {
    XYLEM_TRY(baseline_, Baseline::read(options_.baseline));
  }
  return reports_.open();
}

std::vector<Bytes> Session::sizes_of(Operation operation) const {
  return traits(operation).sizing == Sizing::none ? std::vector<Bytes>{Bytes{0}} : sweep(options_);
}

Result<bool> Session::measure_operation(Operation operation, ProgressBar& progress) {
  const auto sizes = sizes_of(operation);
  XYLEM_TRY(Call call, Call::create(world_, operation, options_, place_, sizes.back()));
  progress.clear();
  print(table_head(operation, options_.in_place && traits(operation).in_place,
                   baseline_.has_value()));
  const std::size_t earlier_rows = rows_.size();
  for (const Bytes size : sizes) {
    XYLEM_TRY(const bool is_lost, is_output_lost());
    if (is_lost) return false;
    progress.show(fmt::format("{} {}", traits(operation).name, format_bytes(size)));
    XYLEM_TRY(BenchRow row, measure_row(operation, size, call));
    progress.advance();
    progress.clear();
    if (first()) reports_.add(row);
    print(table_line(row));
    rows_.push_back(std::move(row));
  }
  if (traits(operation).sizing != Sizing::none) {
    print(average_line(std::span(rows_).subspan(earlier_rows)));
  }
  if (const auto& used = rows_.back().used) print(counters_line(*used));
  return true;
}

Result<BenchRow> Session::measure_row(Operation operation, Bytes size, Call& call) {
  const OperationTraits& kind = traits(operation);
  const Geometry& geometry = call.resize(size);
  BenchRow row;
  row.operation = operation;
  row.algorithm = "point_to_point";
  if (!kind.collective.empty()) {
    XYLEM_TRY(const PlanInfo plan, world_.plan_info(kind.collective, geometry.count, options_.type,
                                                    kind.rooted ? options_.root : 0));
    const bool is_even = operation != Operation::all_to_all_v;
    const bool is_by_devices = place_.orders_calls() && is_even && !plan.on_stream.empty();
    const bool is_on_devices = place_.is_on_device() && is_even && !plan.on_devices.empty();
    row.algorithm = is_by_devices   ? plan.on_stream
                    : is_on_devices ? plan.on_devices
                                    : plan.algorithm;
    if (!is_by_devices && !is_on_devices) row.predicted_us = plan.predicted_us;
  }
  row.transport = transport_names(environment_);
  row.ranks = world_.size();
  row.size = geometry.size;
  row.count = geometry.count;
  row.type = options_.type;
  if (kind.reduces) row.redop = options_.redop;
  if (kind.rooted) row.root = options_.root;
  row.in_place = options_.in_place && kind.in_place;
  row.allocated = options_.allocate;
  row.on_device = place_.is_on_device();
  row.on_stream = place_.orders_calls();
  row.offset = options_.offset;
  if (kind.sizing == Sizing::uneven_parts) row.parts = options_.parts;
  row.checked = options_.check;
  const Ranks ranks{control_, environment_.hosts.size() == 1};
  XYLEM_TRY(row.limit, measure_limit(row));
  XYLEM_TRY(row.measured, measure(call, operation, geometry.size, options_, ranks));
  if (row.on_device) {
    XYLEM_TRY(control_.barrier().wait());
    const Counters before = runtime_.counters();
    XYLEM_TRY(call());
    row.used = runtime_.counters() - before;
  }
  if (baseline_) row.ratio = baseline_->ratio(row);
  return row;
}

/// The limit is measured just before the row, so that the machine is in the same state for both.
Result<std::optional<double>> Session::measure_limit(const BenchRow& row) {
  constexpr std::uint64_t kBeyondCaches = std::uint64_t{16} << 20;
  const double traffic = least_traffic(row.operation, row.ranks, row.in_place);
  if (row.on_device || environment_.hosts.size() > 1 || row.size.value < kBeyondCaches ||
      traffic <= 0) {
    return std::optional<double>();
  }
  if (!copies_) {
    XYLEM_TRY(copies_, Copies::create());
  }
  XYLEM_TRY(const GBps copied, measure_copies(*copies_, control_));
  return std::optional(least_time(traffic, row.size, copied));
}

Result<int> Session::report() {
  // The lanes of a connection are known after it has carried data, so the environment is found
  // again here.
  XYLEM_TRY(environment_, find_environment(runtime_, control_, options_));
  if (!first()) return exit_status(rows_);
  reports_.describe(environment_);
  if (const Status status = reports_.write(); !status) {
    fmt::print(stderr, "xylem bench: {}\n", status.message());
    return kExitOutput;
  }
  return output_error_ != 0 ? kExitOutput : exit_status(rows_);
}

/// Whether this rank prints the error for all ranks: rank 0, or rank 1 if rank 0 was lost.
bool speaks(std::uint32_t rank, const Status& status) {
  return rank == 0 || (rank == 1 && status.peer() == 0);
}

}  // namespace

int take_part(const BenchOptions& options) {
  // Ignore SIGPIPE: if the reader of the output has exited, writing then fails, and all ranks end.
  std::signal(SIGPIPE, SIG_IGN);
  const auto reports = Reports::create(options);
  if (!reports) {
    fmt::print(stderr, "xylem bench: {}\n", reports.status().message());
    return exit_code(reports.code());
  }
  Options start;
  if (!options.transport.empty()) start.transport = options.transport;
  if (!options.require.empty()) start.require = options.require;
  if (!options.algorithm.empty()) start.algorithm = forced_algorithms(options);
  auto runtime = Runtime::create(start);
  if (!runtime) {
    fmt::print(stderr, "xylem bench: {}\n", runtime.status().message());
    return exit_code(runtime.code());
  }
  const auto code = Session(*runtime, options, **reports).run();
  if (const Status status = (*reports)->write_rows_so_far(); !status) {
    fmt::print(stderr, "xylem bench: {}\n", status.message());
  }
  if (!code) {
    if (speaks(runtime->rank(), code.status())) {
      fmt::print(stderr, "xylem bench: {}\n", code.status().message());
    }
    return exit_code(code.code());
  }
  if (const Status left = runtime->shutdown(); !left) {
    fmt::print(stderr, "xylem bench: {}\n", left.message());
    return exit_code(left.code());
  }
  return *code;
}

}  // namespace xylem::tools
