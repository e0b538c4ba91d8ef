// SPDX-License-Identifier: Apache-2.0
//
// The settings of UCX that a reach needs. The tests describe different machines as values.
#include "support/outcome.h"
#include "transport/src/ucx/reach.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace xylem::transport::ucx {
namespace {

using ::testing::HasSubstr;
using Kind = UcxDevice::Kind;

const std::vector<UcxDevice> kBareMachine = {
    {"self", "memory0", Kind::self},          {"tcp", "lo", Kind::network},
    {"tcp", "eth0", Kind::network},           {"sysv", "memory", Kind::shared_memory},
    {"posix", "memory", Kind::shared_memory}, {"cma", "memory", Kind::shared_memory},
};

std::vector<UcxDevice> gpu_machine() {
  auto devices = kBareMachine;
  for (const UcxDevice& more : std::vector<UcxDevice>{
           {"rc_mlx5", "mlx5_0:1", Kind::network},
           {"ud_mlx5", "mlx5_1:1", Kind::network},
           {"cuda_copy", "cuda", Kind::accelerator},
           {"cuda_ipc", "cuda", Kind::shared_memory},
           {"rocm_ipc", "rocm_ipc", Kind::accelerator},
           {"xpmem", "memory", Kind::shared_memory},
           {"a_later_one", "memory", Kind::shared_memory},
       }) {
    devices.push_back(more);
  }
  return devices;
}

std::string transports(UcxReach reach, const std::vector<UcxDevice>& devices) {
  auto allowed = allowed_transports(reach, devices);
  return allowed ? *allowed : allowed.status().to_string();
}

TEST(UcxReach, NetworkIsEveryWireAndNeverSharedMemory) {
  EXPECT_EQ(transports(UcxReach::network, kBareMachine), "self,tcp");
  EXPECT_EQ(transports(UcxReach::network, gpu_machine()), "cuda_copy,rc_mlx5,self,tcp,ud_mlx5");
}

TEST(UcxReach, TcpIsTcpAlone) {
  EXPECT_EQ(transports(UcxReach::tcp, kBareMachine), "self,tcp");
  EXPECT_EQ(transports(UcxReach::tcp, gpu_machine()), "self,tcp");
}

TEST(UcxReach, WithoutAWireTheErrorNamesWhatThereIs) {
  const std::vector<UcxDevice> lonely = {{"self", "memory0", Kind::self},
                                         {"cma", "memory", Kind::shared_memory}};
  for (const UcxReach reach : {UcxReach::network, UcxReach::tcp}) {
    const auto status = allowed_transports(reach, lonely).status();
    EXPECT_THAT(status, fails_as(Code::unsupported, "cma/memory, self/memory0"));
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(name(reach))));
  }
  EXPECT_THAT(std::string(allowed_transports(UcxReach::tcp, {}).status().message()),
              HasSubstr("only nothing"));
}

TEST(UcxReach, OnlyRdmaReadsASendLater) {
  EXPECT_TRUE(copies_on_send(UcxReach::tcp, gpu_machine()));
  EXPECT_TRUE(copies_on_send(UcxReach::network, kBareMachine));
  EXPECT_FALSE(copies_on_send(UcxReach::network, gpu_machine()));
}

TEST(UcxReach, DevicesMustExistAndBeOfTheReach) {
  UcxOptions options;
  options.reach = UcxReach::network;
  options.devices = {"eth0", "mlx5_0:1"};
  auto devices = value_of(allowed_devices(options, gpu_machine()));
  EXPECT_EQ(devices, "eth0,mlx5_0:1");

  options.reach = UcxReach::tcp;
  EXPECT_THAT(allowed_devices(options, gpu_machine()),
              fails_as(Code::invalid_argument, "mlx5_0:1"));

  options.devices = {"eth7"};
  EXPECT_EQ(allowed_devices(options, gpu_machine()).code(), Code::invalid_argument);
  options.devices = {"memory"};
  EXPECT_EQ(allowed_devices(options, gpu_machine()).code(), Code::invalid_argument);
}

}  // namespace
}  // namespace xylem::transport::ucx
