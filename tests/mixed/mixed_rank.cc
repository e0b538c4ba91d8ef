// SPDX-License-Identifier: Apache-2.0
//
// One rank of the mixed programs, as a process.
//
//   mixed_rank SEED PROGRAMS CALLS DEVICE [FAULT VICTIM DIRECTORY]
//
// DEVICE is "none" or "cuda". With "cuda", some buffers are in device memory, over the driver
// libcuda.so.1. If there are more ranks than devices, ranks share devices.
//
// Prints "worst SECONDS", the longest time until a call returned an error. Exits with 0 if all
// results were right.
#include "mixed/rank.h"

#ifdef XYLEM_TEST_CUDA
#include "mixed/cuda_device.h"
#endif

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

namespace xylem::test::mixed {
namespace {

/// Returns null for "none". Ends the process if the device does not exist.
std::unique_ptr<Device> make_device(std::string_view kind, [[maybe_unused]] std::uint32_t rank) {
  if (kind == "none") return nullptr;
#ifdef XYLEM_TEST_CUDA
  if (kind == "cuda") return std::make_unique<CudaDevice>(rank);
#endif
  std::printf("there is no device %s in this build; say none or cuda\n", std::string(kind).c_str());
  std::exit(2);
}

int run(int argc, char** argv) {
  if (argc != 5 && argc != 8) {
    std::fputs("usage: mixed_rank SEED PROGRAMS CALLS DEVICE [FAULT VICTIM DIRECTORY]\n", stderr);
    return 2;
  }
  Setting setting{std::strtoull(argv[1], nullptr, 10),
                  static_cast<std::uint32_t>(std::strtoul(argv[2], nullptr, 10)),
                  static_cast<std::uint32_t>(std::strtoul(argv[3], nullptr, 10)),
                  {},
                  0,
                  {}};
  if (argc == 8) {
    setting.fault = argv[5];
    setting.victim = static_cast<std::uint32_t>(std::strtoul(argv[6], nullptr, 10));
    setting.directory = argv[7];
  }
  auto runtime = Runtime::create();
  if (!runtime) {
    std::printf("%s\n", runtime.status().to_string().c_str());
    return 1;
  }
  const auto device = make_device(argv[4], runtime->rank());
  setting.device = device.get();
  const bool is_victim = runtime->rank() == setting.victim;
  const std::string through = setting.directory + "/victim-is-through";
  const char* const transport = std::getenv("XYLEM_TRANSPORT");
  setting.withdraws = transport == nullptr || std::string_view(transport) != "ucx-tcp";
  Rank rank(*runtime, setting);
  const std::string wrong = rank.run();
  if (wrong.empty()) {
    std::printf("worst %.3f s, %llu elements\n", rank.worst(),
                static_cast<unsigned long long>(rank.checked()));
  } else {
    std::printf("rank %u, %s\n", runtime->rank(), wrong.c_str());
  }
  if (is_victim && setting.fault == "stop") {
    // After shutdown(), no message that this rank sent since its stop is still in its transports.
    (void)runtime->shutdown();
    const int fd = ::open(through.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (fd >= 0) ::close(fd);
  }
  return wrong.empty() ? 0 : 1;
}

}  // namespace
}  // namespace xylem::test::mixed

int main(int argc, char** argv) { return xylem::test::mixed::run(argc, argv); }
