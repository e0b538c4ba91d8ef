// SPDX-License-Identifier: Apache-2.0
//
// Backend's calls that send and receive messages between two ranks.
#include "backend.h"
#include "failure.h"
#include "prepare.h"

#include <c10/util/StringUtil.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace xylem::pytorch {

using c10d::OpType;

namespace {

const at::Tensor& message(const char* call, Tensors& tensors, int tag) {
  const at::Tensor& tensor = only(call, tensors);
  if (tag < 0) refuse(c10::str(call, ": tag ", tag, "; tags are not negative"));
  if (!is_plain(tensor)) {
    refuse(c10::str(call, ": the tensor is not contiguous: pass tensor.contiguous()"));
  }
  return tensor;
}

}  // namespace

Backend::WorkPtr Backend::send(Tensors& tensors, int to, int tag) {
  const at::Tensor& tensor = message("send", tensors, tag);
  const std::uint32_t partner = peer("send", to);
  const TaskPtr task = make_task(OpType::SEND, "xylem:send", tensors);
  StartedCall begun;
  begun.outputs.push_back(tensor);
  begun.works.push_back(
      sequences_->messages_on(tensor, begun)
          .send(transfer_buffer(tensor), partner, static_cast<std::uint32_t>(tag)));
  return submit(task, std::move(begun), c10d::kUnsetTimeout, tensors, to);
}

Backend::WorkPtr Backend::recv(Tensors& tensors, int from, int tag) {
  const at::Tensor& tensor = message("recv", tensors, tag);
  const std::uint32_t partner = peer("recv", from);
  const TaskPtr task = make_task(OpType::RECV, "xylem:recv", tensors);
  StartedCall begun;
  begun.outputs.push_back(tensor);
  begun.works.push_back(
      sequences_->messages_on(tensor, begun)
          .recv(transfer_buffer(tensor), partner, static_cast<std::uint32_t>(tag)));
  return submit(task, std::move(begun), c10d::kUnsetTimeout, tensors, from);
}

Backend::WorkPtr Backend::recvAnysource(Tensors& tensors, int tag) {
  const at::Tensor& tensor = message("recv", tensors, tag);
  const TaskPtr task = make_task(OpType::RECVANYSOURCE, "xylem:recvAnySource", tensors);
  StartedCall begun;
  begun.outputs.push_back(tensor);
  begun.works.push_back(
      sequences_->messages_on(tensor, begun)
          .recv(transfer_buffer(tensor), std::nullopt, static_cast<std::uint32_t>(tag)));
  return submit(task, std::move(begun), c10d::kUnsetTimeout, tensors);
}

}  // namespace xylem::pytorch
