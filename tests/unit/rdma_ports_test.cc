// SPDX-License-Identifier: Apache-2.0
//
// The network devices that UCX may use. The tests describe different machines as values.
#include "runtime/src/wires/rdma_ports.h"

#include "support/outcome.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace xylem::runtime {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using transport::UcxDevice;
using Kind = UcxDevice::Kind;

const std::vector<UcxDevice> kBareMachine = {
    {"self", "memory0", Kind::self},          {"tcp", "lo", Kind::network},
    {"tcp", "eth0", Kind::network},           {"sysv", "memory", Kind::shared_memory},
    {"posix", "memory", Kind::shared_memory}, {"cma", "memory", Kind::shared_memory},
};

/// A machine whose UCX supports CUDA and ROCm, with or without RDMA.
std::vector<UcxDevice> gpu_machine(bool rdma) {
  auto devices = kBareMachine;
  for (const UcxDevice& more : std::vector<UcxDevice>{
           {"cuda_copy", "cuda", Kind::accelerator},
           {"cuda_ipc", "cuda", Kind::shared_memory},
           {"gdr_copy", "cuda", Kind::accelerator},
           {"rocm_copy", "rocm_copy", Kind::accelerator},
           {"rocm_ipc", "rocm_ipc", Kind::accelerator},
           {"ze_copy", "GPU0", Kind::accelerator},
       }) {
    devices.push_back(more);
  }
  if (rdma) {
    for (const char* const port : {"mlx5_0:1", "mlx5_1:1"}) {
      for (const char* const wire : {"rc_verbs", "ud_verbs"}) {
        devices.push_back({wire, port, Kind::network});
      }
    }
  }
  return devices;
}

Result<std::vector<std::string>> choose_rdma(const std::vector<UcxDevice>& found,
                                             const std::string& filter = "") {
  Config config;
  config.devices = filter;
  return choose_rdma_devices(found, config);
}

TEST(Devices, AcceleratorsAreNoneOfTheNetwork) {
  EXPECT_THAT(choose_rdma(gpu_machine(true)).value(), ElementsAre("mlx5_0:1", "mlx5_1:1"));
  EXPECT_THAT(choose_rdma(gpu_machine(true), "^mlx5_0").value(), ElementsAre("mlx5_1:1"));
  EXPECT_FALSE(choose_rdma(gpu_machine(true), "cuda,GPU0,rocm_copy,memory0"));
}

TEST(Devices, TcpAloneIsTheInterface) {
  EXPECT_THAT(choose_tcp_device(kBareMachine, "eth0").value(), ElementsAre("eth0"));
  EXPECT_THAT(choose_tcp_device(gpu_machine(true), "eth0").value(), ElementsAre("eth0"));
  const auto none = choose_tcp_device(gpu_machine(true), "mlx5_0:1");
  EXPECT_THAT(none, fails_as(Code::invalid_argument, "mlx5_0:1", "[lo, eth0]"));
}

TEST(Devices, WithoutRdmaTheErrorSaysWhatThereIs) {
  const auto none = choose_rdma(gpu_machine(false), "mlx5_0");
  ASSERT_FALSE(none) << "an accelerator is no RDMA device";
  EXPECT_EQ(none.status().code(), Code::invalid_argument);
  EXPECT_THAT(std::string(none.status().message()),
              AllOf(HasSubstr("XYLEM_DEVICES=mlx5_0"), HasSubstr("[]"), Not(HasSubstr("cuda"))));
}

TEST(Devices, UcxThatFindsNoRdmaSaysWhy) {
  EXPECT_THAT(why_no_rdma(gpu_machine(false)), HasSubstr("built without verbs"));
  EXPECT_THAT(why_no_rdma(gpu_machine(true)), IsEmpty());
}

TEST(Devices, AFilterNamesDevicesWithOrWithoutTheirPort) {
  const std::vector<std::string> names = {"mlx5_0:1", "mlx5_1:1"};
  EXPECT_EQ(filter_names(names, ""), names);
  EXPECT_THAT(filter_names(names, "mlx5_1"), ElementsAre("mlx5_1:1"));
  EXPECT_THAT(filter_names(names, "mlx5_0:1"), ElementsAre("mlx5_0:1"));
  EXPECT_THAT(filter_names(names, "^mlx5_0,mlx5_1:1"), IsEmpty());
  EXPECT_THAT(filter_names(names, "mlx5"), IsEmpty());
}

}  // namespace
}  // namespace xylem::runtime
