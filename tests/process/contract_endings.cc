// SPDX-License-Identifier: Apache-2.0
//
// Ranks of contract_test whose program uses the runtime while it ends.
#include "process/contract_endings.h"

#include "xylem/xylem.h"
#include "xylem/xylem_c.h"

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string_view>
#include <vector>

namespace xylem::test {
namespace {

constexpr std::size_t kMany = 1 << 20;

/// Never destroyed.
struct Ending {
  Runtime runtime;
  Communicator world;
  void (*in_destructor)(Ending&) = nullptr;
};
Ending* ending = nullptr;

[[gnu::destructor]] void at_the_end() {
  if (ending != nullptr && ending->in_destructor != nullptr) ending->in_destructor(*ending);
}

void check(bool is_right, const char* what) {
  if (is_right) return;
  std::printf("wrong: %s\n", what);
  std::fflush(stdout);
  _exit(9);
}

void check(const Status& status, const char* what) {
  if (!status) std::printf("%s\n", status.to_string().c_str());
  check(status.is_ok(), what);
}

Status all_reduce(const Communicator& comm, std::size_t count) {
  std::vector<float> in(count, 1.0F), out(count);
  const Status status = comm.all_reduce(std::span<const float>(in), std::span(out)).wait();
  check(!status || out.back() == static_cast<float>(comm.size()), "the sum");
  return status;
}

/// Plans, messages, communicators, errors, logs and memory: whatever calls use must be there.
void use_everything(Ending& end) {
  const auto n = end.world.size(), me = end.world.rank();
  for (const std::size_t count : {1, 5'000, 300'000}) check(all_reduce(end.world, count), "sum");
  check(end.world.plan_info("all_gather", 100, DataType::float32).status(), "plan_info");
  std::vector<float> in(kMany, static_cast<float>(me)), out(kMany);
  const Work sent = end.world.send(std::span<const float>(in), (me + 1) % n);
  check(wait_all(end.world.recv(std::span(out), (me + n - 1) % n), sent), "messages");
  check(out.back() == static_cast<float>((me + n - 1) % n), "the message");
  auto half = end.world.split(static_cast<std::int32_t>(me % 2), 0);
  check(half.status(), "split");
  check(half->barrier().wait(), "barrier");
  check(half->destroy(), "destroy");
  check(allocate(1000).status(), "allocate");
  // The last error of this thread was set before the program ended, too.
  for (int i = 0; i < 2; ++i) {
    check(xylem_barrier(nullptr, nullptr) == XYLEM_INVALID_ARGUMENT, "xylem_barrier");
    check(std::string_view(xylem_last_error()) == "communicator is null", "xylem_last_error");
  }
  check(end.world.plan_info("all_reduse", 1, DataType::float32).code() == Code::invalid_argument,
        "an error");
  check(end.runtime.shutdown(), "shutdown");
  std::printf("used everything\n");
  std::fflush(stdout);
}

int end_with_calls(bool is_in_destructor) {
  check(xylem_barrier(nullptr, nullptr) == XYLEM_INVALID_ARGUMENT, "xylem_barrier");
  check(all_reduce(ending->world, 1), "sum");
  if (is_in_destructor) {
    ending->in_destructor = use_everything;
  } else {
    check(std::atexit([] { use_everything(*ending); }) == 0, "atexit");
  }
  return 0;
}

}  // namespace

int test_ending(const std::string& mode) {
  auto runtime = Runtime::create();
  check(runtime.status(), "start");
  ending = new Ending{*std::move(runtime), {}, nullptr};
  ending->world = ending->runtime.world();
  if (mode == "calls_in_destructor") return end_with_calls(true);
  return end_with_calls(false);
}

}  // namespace xylem::test
