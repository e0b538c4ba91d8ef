// SPDX-License-Identifier: Apache-2.0
//
// The mapping from the statuses of UCX to Xylem's codes.
#include "transport/src/ucx/api.h"
#include "transport/src/ucx/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace xylem::transport::ucx {
namespace {

TEST(UcxStatus, EveryOutcomeHasItsRemedy) {
  const struct {
    ucs_status_t status;
    Code code;
  } rows[] = {
      {UCS_OK, Code::ok},
      {UCS_INPROGRESS, Code::busy},
      {UCS_ERR_NO_MESSAGE, Code::internal},
      {UCS_ERR_NO_RESOURCE, Code::exhausted},
      {UCS_ERR_IO_ERROR, Code::link_lost},
      {UCS_ERR_NO_MEMORY, Code::exhausted},
      {UCS_ERR_INVALID_PARAM, Code::internal},
      {UCS_ERR_UNREACHABLE, Code::link_lost},
      {UCS_ERR_INVALID_ADDR, Code::invalid_argument},
      {UCS_ERR_NOT_IMPLEMENTED, Code::unsupported},
      {UCS_ERR_MESSAGE_TRUNCATED, Code::mismatch},
      {UCS_ERR_NO_PROGRESS, Code::internal},
      {UCS_ERR_BUFFER_TOO_SMALL, Code::internal},
      {UCS_ERR_NO_ELEM, Code::internal},
      {UCS_ERR_SOME_CONNECTS_FAILED, Code::link_lost},
      {UCS_ERR_NO_DEVICE, Code::unsupported},
      {UCS_ERR_BUSY, Code::busy},
      {UCS_ERR_CANCELED, Code::cancelled},
      {UCS_ERR_SHMEM_SEGMENT, Code::exhausted},
      {UCS_ERR_ALREADY_EXISTS, Code::internal},
      {UCS_ERR_OUT_OF_RANGE, Code::internal},
      {UCS_ERR_TIMED_OUT, Code::timed_out},
      {UCS_ERR_EXCEEDS_LIMIT, Code::exhausted},
      {UCS_ERR_UNSUPPORTED, Code::unsupported},
      {UCS_ERR_REJECTED, Code::peer_lost},
      {UCS_ERR_NOT_CONNECTED, Code::peer_lost},
      {UCS_ERR_CONNECTION_RESET, Code::peer_lost},
      {UCS_ERR_FIRST_LINK_FAILURE, Code::link_lost},
      {UCS_ERR_LAST_LINK_FAILURE, Code::link_lost},
      {UCS_ERR_FIRST_ENDPOINT_FAILURE, Code::peer_lost},
      {UCS_ERR_ENDPOINT_TIMEOUT, Code::peer_lost},
      {UCS_ERR_LAST_ENDPOINT_FAILURE, Code::peer_lost},
      {UCS_ERR_LAST, Code::internal},
  };
  for (const auto& row : rows) EXPECT_EQ(code_of(row.status), row.code) << row.status;
}

TEST(UcxStatus, NumbersWithinARangeOfFailuresAreOfItsKind) {
  EXPECT_EQ(code_of(static_cast<ucs_status_t>(-45)), Code::link_lost);
  EXPECT_EQ(code_of(static_cast<ucs_status_t>(-75)), Code::peer_lost);
  EXPECT_EQ(code_of(static_cast<ucs_status_t>(-95)), Code::internal);
  EXPECT_EQ(code_of(static_cast<ucs_status_t>(-30)), Code::internal);
}

TEST(UcxStatus, CancelledMeansPeerLostUnlessWeAsked) {
  EXPECT_EQ(send_code(UCS_ERR_CANCELED), Code::peer_lost);
  EXPECT_EQ(receive_code(UCS_ERR_CANCELED, /*asked=*/false), Code::peer_lost);
  EXPECT_EQ(receive_code(UCS_ERR_CANCELED, /*asked=*/true), Code::cancelled);
  EXPECT_EQ(receive_code(UCS_OK, /*asked=*/true), Code::ok);
  EXPECT_EQ(send_code(UCS_OK), Code::ok);
}

TEST(UcxStatus, RefusalNamesTheActTheReasonAndTheRemedy) {
  ASSERT_TRUE(open_api());
  const Status status = refusal(UCS_ERR_NO_MEMORY, "make a worker", "raise ulimit -n");
  EXPECT_EQ(status.code(), Code::exhausted);
  EXPECT_EQ(status.message(), "UCX could not make a worker: Out of memory: raise ulimit -n");
}

}  // namespace
}  // namespace xylem::transport::ucx
