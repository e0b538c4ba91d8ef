// SPDX-License-Identifier: Apache-2.0
//
// torch's key-value store as the one that ranks meet through.
#pragma once

#include "xylem/xylem.h"

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace xylem::pytorch {

/// `store` is the group's own: its keys begin with the group's name.
std::shared_ptr<Store> adapt(c10::intrusive_ptr<c10d::Store> store);

/// What all members learn from rank 0 before they start: a name that no other start has, and the
/// proof that one belongs to it.
struct Invitation {
  std::string job;
  std::string secret;
};
Result<Invitation> invite(Store& store, const std::string& group, bool is_host, Deadline deadline);

}  // namespace xylem::pytorch
