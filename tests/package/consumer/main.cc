// SPDX-License-Identifier: Apache-2.0
//
// A program of a user: starts a job of one rank, reduces a vector, and prints the result. With
// USE_UCX it also calls UCX directly.
#include <xylem/base/version.h>
#include <xylem/xylem.h>

#ifdef USE_UCX
#include <ucp/api/ucp.h>
#endif

#include <cstdio>
#include <string>
#include <vector>

int main() {
#ifdef USE_UCX
  std::printf("ucx %s, ", ucp_get_version_string());
#endif
  if (xylem::version() != XYLEM_VERSION) {
    std::printf("header %s, library %s\n", XYLEM_VERSION, std::string(xylem::version()).c_str());
    return 1;
  }
  auto runtime = xylem::Runtime::create({.rank = 0, .size = 1});
  if (!runtime) {
    std::printf("start: %s\n", runtime.status().to_string().c_str());
    return 1;
  }
  const std::vector<float> input = {1, 2, 3};
  std::vector<float> output(input.size());
  const std::vector<xylem::Work> works = {runtime->world().all_reduce(input, output)};
  const xylem::Status done = xylem::wait_all(works);
  if (!done || output != input) {
    std::printf("all_reduce: %s\n", done.to_string().c_str());
    return 1;
  }
  std::printf("xylem %s works\n", std::string(xylem::version()).c_str());
  return runtime->shutdown() ? 0 : 1;
}
