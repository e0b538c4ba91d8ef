// SPDX-License-Identifier: Apache-2.0
//
// UCX moves device memory between two processes by CUDA IPC, without Xylem. This tests the driver
// libcuda.so.1 together with a UCX that supports CUDA. In CI these are the stand-in
// (tests/fakes/cuda_driver) and the unmodified UCX wheel from PyPI. Both processes are started by
// executing this program, since a process that uses UCX must not fork.
#include "fakes/cuda_driver/fake_cuda.h"
#include "xylem/base/clock.h"
#include "xylem/base/unique_fd.h"

#include <cuda.h>
#include <gtest/gtest.h>
#include <ucp/api/ucp.h>

#include <dlfcn.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

/// Finds a function of the driver by the name to which the macros of cuda.h expand.
#define CU(name) (function<decltype(&(name))>(XYLEM_TEXT(name)))
#define XYLEM_TEXT(name) XYLEM_TEXT_OF(name)
#define XYLEM_TEXT_OF(name) #name

namespace xylem::test {
namespace {

constexpr int kSocket = 3;
constexpr std::chrono::seconds kPatience{60};
constexpr ucp_tag_t kTag = 5;

/// A test that both processes run.
struct Scenario {
  const char* name;
  std::size_t bytes;  ///< Size of each message.
  int rounds;         ///< Each round allocates the memory again.
  int devices;        ///< 1: both processes use device 0; 2: the peer uses device 1.
  bool is_virtual;    ///< Memory of cuMemCreate. UCX has no IPC for it without fabric handles.
};

constexpr Scenario kScenarios[] = {
    {"SmallMessage", 64, 1, 1, false},      {"MessageOf64KiB", 64 << 10, 1, 1, false},
    {"LargeMessage", 8 << 20, 1, 1, false}, {"LargeMessageOfOddLength", (8 << 20) - 3, 1, 1, false},
    {"TwoDevices", 1 << 20, 1, 2, false},   {"AddressesThatAreUsedAgain", 1 << 20, 8, 1, false},
    {"VirtualMemory", 8 << 20, 2, 1, true},
};

/// The library of the driver that UCX also uses. It stays loaded until the process ends.
void* driver() {
  static void* opened = dlopen("libcuda.so.1", RTLD_NOW);
  return opened;
}

template <typename Function>
Function function(const char* name) {
  void* found = driver() == nullptr ? nullptr : dlsym(driver(), name);
  if (found == nullptr) {
    std::fprintf(stderr, "libcuda.so.1 has no %s: %s\n", name, dlerror());
    std::abort();
  }
  return reinterpret_cast<Function>(found);
}

/// A function that only the stand-in has; nullptr with the driver of a GPU.
template <typename Function>
Function own_function(const char* name) {
  return reinterpret_cast<Function>(dlsym(driver(), name));
}

/// If `holds` is false, prints `what` and ends the process. The other process then fails, since the
/// socket closes.
void require(bool holds, std::string_view what) {
  if (holds) return;
  std::fprintf(stderr, "failed: %.*s\n", static_cast<int>(what.size()), what.data());
  std::_Exit(1);
}
void require(ucs_status_t status, std::string_view what) {
  require(status == UCS_OK, std::string(what) + ": " + ucs_status_string(status));
}
void require(CUresult result, std::string_view what) {
  require(result == CUDA_SUCCESS, std::string(what) + ": CUDA error " + std::to_string(result));
}

/// The socket over which the two processes exchange data outside of UCX.
class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {
    const timeval limit{kPatience.count(), 0};
    require(::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0, "SO_RCVTIMEO");
  }
  void give(const void* data, std::size_t bytes) const {
    require(::send(fd_, data, bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes), "send");
  }
  void take(void* data, std::size_t bytes) const {
    require(::recv(fd_, data, bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes),
            "the other process has ended");
  }
  bool has_input() const {
    pollfd waiting{fd_, POLLIN, 0};
    return ::poll(&waiting, 1, 0) == 1;
  }

 private:
  int fd_;
};

class Rank {
 public:
  Rank(const Socket& socket, int device) : socket_(socket) {
    require(CU(cuInit)(0), "cuInit");
    CUcontext context = nullptr;
    require(CU(cuDevicePrimaryCtxRetain)(&context, device), "cuDevicePrimaryCtxRetain");
    require(CU(cuCtxSetCurrent)(context), "cuCtxSetCurrent");

    ucp_config_t* config = nullptr;
    require(ucp_config_read(nullptr, nullptr, &config), "ucp_config_read");
    require(ucp_config_modify(config, "TLS", "cuda_copy,cuda_ipc,posix,self"), "TLS");
    ucp_params_t parameters = {};
    parameters.field_mask = UCP_PARAM_FIELD_FEATURES;
    parameters.features = UCP_FEATURE_TAG;
    require(ucp_init(&parameters, config, &context_), "ucp_init");
    ucp_config_release(config);
    ucp_worker_params_t of_worker = {};
    of_worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    of_worker.thread_mode = UCS_THREAD_MODE_SINGLE;
    require(ucp_worker_create(context_, &of_worker, &worker_), "ucp_worker_create");
    connect();
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
  ~Rank() {
    const ucp_request_param_t none = {};
    finish(ucp_ep_close_nbx(endpoint_, &none), "ucp_ep_close_nbx");
    ucp_worker_destroy(worker_);
    ucp_cleanup(context_);
  }

  void send(CUdeviceptr from, std::size_t bytes) {
    const ucp_request_param_t none = {};
    finish(ucp_tag_send_nbx(endpoint_, data(from), bytes, kTag, &none), "ucp_tag_send_nbx");
  }
  void receive(CUdeviceptr to, std::size_t bytes) {
    const ucp_request_param_t none = {};
    finish(ucp_tag_recv_nbx(worker_, data(to), bytes, kTag, ~ucp_tag_t{0}, &none),
           "ucp_tag_recv_nbx");
  }
  /// Waits for the other process, and progresses UCX until then, so that its requests are served.
  void meet() {
    const char byte = 1;
    socket_.give(&byte, 1);
    const auto deadline = Deadline::after(kPatience);
    while (!socket_.has_input()) {
      ucp_worker_progress(worker_);
      require(!deadline.passed(), "waiting for the other process");
    }
    char theirs = 0;
    socket_.take(&theirs, 1);
  }

 private:
  static void* data(CUdeviceptr address) {
    return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
  }
  void connect() {
    ucp_address_t* address = nullptr;
    std::size_t bytes = 0;
    require(ucp_worker_get_address(worker_, &address, &bytes), "ucp_worker_get_address");
    socket_.give(&bytes, sizeof bytes);
    socket_.give(address, bytes);
    ucp_worker_release_address(worker_, address);
    std::size_t of_peer = 0;
    socket_.take(&of_peer, sizeof of_peer);
    std::vector<std::byte> peer(of_peer);
    socket_.take(peer.data(), peer.size());
    ucp_ep_params_t parameters = {};
    parameters.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    parameters.address = reinterpret_cast<const ucp_address_t*>(peer.data());
    require(ucp_ep_create(worker_, &parameters, &endpoint_), "ucp_ep_create");
  }
  void finish(ucs_status_ptr_t request, std::string_view what) {
    if (request == nullptr) return;
    require(!UCS_PTR_IS_ERR(request), what);
    const auto deadline = Deadline::after(kPatience);
    while (ucp_request_check_status(request) == UCS_INPROGRESS) {
      ucp_worker_progress(worker_);
      require(!deadline.passed(), what);
    }
    require(ucp_request_check_status(request), what);
    ucp_request_free(request);
  }

  const Socket& socket_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  ucp_ep_h endpoint_ = nullptr;
};

std::vector<unsigned char> contents(std::size_t bytes, int sender, int round) {
  std::vector<unsigned char> values(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    values[i] = static_cast<unsigned char>(i * 7 + (i >> 8) * 13 +
                                           static_cast<unsigned>(100 * sender + round + 1));
  }
  return values;
}

/// Allocates whole granules. `bytes` must be a multiple of the granularity.
CUdeviceptr allocate_virtual(std::size_t bytes) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr address = 0;
  const CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  require(CU(cuMemCreate)(&handle, bytes, &properties, 0), "cuMemCreate");
  require(CU(cuMemAddressReserve)(&address, bytes, 0, 0, 0), "cuMemAddressReserve");
  require(CU(cuMemMap)(address, bytes, 0, handle, 0), "cuMemMap");
  require(CU(cuMemRelease)(handle), "cuMemRelease");
  require(CU(cuMemSetAccess)(address, bytes, &access, 1), "cuMemSetAccess");
  return address;
}

CUdeviceptr allocate(const Scenario& scenario) {
  if (scenario.is_virtual) return allocate_virtual(scenario.bytes);
  CUdeviceptr address = 0;
  require(CU(cuMemAlloc)(&address, scenario.bytes), "cuMemAlloc");
  return address;
}

void release(const Scenario& scenario, CUdeviceptr address) {
  if (scenario.is_virtual) {
    require(CU(cuMemUnmap)(address, scenario.bytes), "cuMemUnmap");
    require(CU(cuMemAddressFree)(address, scenario.bytes), "cuMemAddressFree");
  } else {
    require(CU(cuMemFree)(address), "cuMemFree");
  }
}

/// Sends a message to the other process, and receives one.
void run_round(Rank& rank, const Scenario& scenario, int me, int round) {
  const std::size_t bytes = scenario.bytes;
  const CUdeviceptr out = allocate(scenario);
  const CUdeviceptr in = allocate(scenario);
  require(CU(cuMemcpyHtoD)(out, contents(bytes, me, round).data(), bytes), "cuMemcpyHtoD");
  require(CU(cuCtxSynchronize)(), "cuCtxSynchronize");
  if (me == 0) rank.send(out, bytes);
  rank.receive(in, bytes);
  if (me != 0) rank.send(out, bytes);
  rank.meet();
  std::vector<unsigned char> received(bytes);
  require(CU(cuMemcpyDtoH)(received.data(), in, bytes), "cuMemcpyDtoH");
  const std::vector<unsigned char> expected = contents(bytes, 1 - me, round);
  require(std::memcmp(received.data(), expected.data(), bytes) == 0, "a wrong byte was received");
  release(scenario, out);
  release(scenario, in);
}

/// The number of calls of a function of the driver. It is 1 with the driver of a GPU, which does
/// not count calls.
unsigned long calls_of(const char* name) {
  const auto count = own_function<decltype(&fake_cuda_calls)>("fake_cuda_calls");
  return count == nullptr ? 1 : count(name);
}

void run(const Scenario& scenario, int me, int fd) {
  const Socket socket(fd);
  {
    Rank rank(socket, scenario.devices == 2 ? me : 0);
    for (int round = 0; round < scenario.rounds; ++round) {
      run_round(rank, scenario, me, round);
    }
    // UCX reads or writes peer memory, so at least one process must have opened the other's memory.
    const unsigned long opened = calls_of("cuIpcOpenMemHandle_v2");
    unsigned long of_peer = 0;
    socket.give(&opened, sizeof opened);
    socket.take(&of_peer, sizeof of_peer);
    require(opened + of_peer > 0 || scenario.is_virtual, "UCX did not use CUDA IPC");
    rank.meet();
  }
  const auto misuses = own_function<decltype(&fake_cuda_misuses)>("fake_cuda_misuses");
  if (misuses == nullptr || misuses() == 0) return;
  const auto last = own_function<decltype(&fake_cuda_last_misuse)>("fake_cuda_last_misuse");
  require(false, std::string("UCX misused the driver: ") + last());
}

/// Starts this executable as process `me` of a scenario.
pid_t start(const Scenario& scenario, int me, int fd) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, fd, kSocket);
  std::string program = "/proc/self/exe";
  std::string role = me == 0 ? "--rank0" : "--rank1";
  std::string name = scenario.name;
  char* arguments[] = {program.data(), role.data(), name.data(), nullptr};
  pid_t pid = -1;
  const int error = posix_spawn(&pid, program.c_str(), &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  return error == 0 ? pid : -1;
}

class UcxCuda : public testing::TestWithParam<Scenario> {};

TEST_P(UcxCuda, MovesDeviceMemoryBetweenProcesses) {
  int sockets[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
  pid_t ranks[2] = {start(GetParam(), 0, sockets[0]), start(GetParam(), 1, sockets[1])};
  ::close(sockets[0]);
  ::close(sockets[1]);
  for (const pid_t rank : ranks) {
    ASSERT_GT(rank, 0);
    int status = -1;
    EXPECT_EQ(::waitpid(rank, &status, 0), rank);
    EXPECT_EQ(status, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Over, UcxCuda, testing::ValuesIn(kScenarios), [](const auto& row) {
  return row.param.name;
});

}  // namespace
}  // namespace xylem::test

int main(int argc, char** argv) {
  using namespace xylem::test;  // NOLINT(google-build-using-namespace)
  const std::vector<std::string_view> arguments(argv, argv + argc);
  for (const Scenario& scenario : kScenarios) {
    if (arguments.size() != 3 || arguments[2] != scenario.name) continue;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    run(scenario, arguments[1] == "--rank0" ? 0 : 1, kSocket);
    return 0;
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
