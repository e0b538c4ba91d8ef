// SPDX-License-Identifier: Apache-2.0
//
// Plans: how a communicator carries out its collectives. A plan is made by the thread that makes
// the call, without the progress token, since choosing and compiling take long where there are many
// ranks. The plans used last are kept.
#pragma once

#include "calls.h"
#include "compute_devices.h"
#include "situation.h"
#include "xylem/base/log.h"
#include "xylem/base/status.h"
#include "xylem/collectives/choose.h"
#include "xylem/execution/engine.h"
#include "xylem/execution/program.h"

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace xylem::runtime {

/// How calls with the same arguments, except for their addresses, are carried out.
struct Plan : std::enable_shared_from_this<Plan> {
  /// What programs of the same call may differ in from rank to rank: other ranks do not notice.
  struct Variant {
    bool is_on_device = false;  ///< A device computes.
    /// The input is scaled before it is used, or overwritten before all of it has been used.
    bool stages_input = false;

    friend bool operator==(const Variant&, const Variant&) = default;
  };

  CallRecord record;  ///< The arguments and their fingerprint. It has no number yet.
  Variant variant;
  /// Calls with such arguments need no other check. None where the arguments tell too little.
  std::optional<KnownArguments> arguments;
  std::shared_ptr<const execution::Program> program;

  // Token holder.
  bool is_connected = false;                    ///< The links of the peers are known.
  std::optional<execution::Exchange> exchange;  ///< Set where it can run within a call.
};

/// The plans of one communicator.
///
/// The list of plans changes only under both the progress token and the mutex. So the token holder
/// reads it without the mutex, and other threads read it with the mutex.
class Plans {
 public:
  /// What plans depend on besides the call; alike on all ranks, except for the last three.
  struct Site {
    std::uint32_t rank = 0, size = 1;
    std::uint64_t slice_bytes = 0;
    std::uint32_t window = 1;
    std::string algorithm;         ///< XYLEM_ALGORITHM
    bool reaches_devices = false;  ///< Messages go directly from and to the memory of devices.
    const ComputeDevices* devices = nullptr;
    std::uint32_t slot = 0;  ///< Of the communicator.
  };

  /// The logger outlives it.
  Plans(Site site, collectives::CostModel model, const Logger& logger);
  Plans(const Plans&) = delete;
  Plans& operator=(const Plans&) = delete;
  ~Plans() = default;

  /// Forgets all plans, since they follow from the model. Only while no call is made; token holder.
  void set_model(collectives::CostModel model);
  const collectives::CostModel& model() const noexcept { return chooser_.model(); }

  // Any thread.
  Result<collectives::Choice> choose(const collectives::Shape& shape,
                                     std::uint64_t count,
                                     DataType type);
  /// The plan of a checked call: one that is kept, or a new one.
  Result<std::shared_ptr<Plan>> plan_for(const Call& call);

  // Token holder.
  /// A plan for these arguments among those used last; null if none is found.
  Plan* find(const EvenArguments& arguments) noexcept;
  /// The plan is used: keeps it as the one used last, unless its call is uneven.
  void note_use(const std::shared_ptr<Plan>& plan);

 private:
  void drop_evicted();
  std::shared_ptr<Plan> kept_for(const Call& call, Plan::Variant variant);
  Result<collectives::Choice> choose(const Call& call);
  Result<std::shared_ptr<const execution::Program>> compile_for(const Call& call,
                                                                Plan::Variant variant);

  const Site site_;
  const Logger& logger_;
  std::mutex choosing_;  ///< For `chooser_`.
  collectives::Chooser chooser_;
  std::mutex mutex_;
  std::list<std::shared_ptr<Plan>> plans_;  ///< The one used last comes first.
  /// Plans that are not kept any more. They are freed without the token, since that takes long,
  /// too.
  std::list<std::shared_ptr<Plan>> evicted_;
};

}  // namespace xylem::runtime
