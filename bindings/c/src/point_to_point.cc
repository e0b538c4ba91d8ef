// SPDX-License-Identifier: Apache-2.0
#include "begin.h"

using xylem::Communicator;
using xylem::DataType;
using xylem::Result;
using xylem::Work;

xylem_status xylem_send(xylem_communicator* communicator,
                        const void* buffer,
                        size_t count,
                        xylem_data_type type,
                        uint32_t to,
                        uint32_t tag,
                        xylem_work** work) {
  return xylem::c::begin_move(communicator, type, work,
                              [&](const Communicator& on, DataType element) -> Result<Work> {
                                return on.send({buffer, count, element}, to, tag);
                              });
}

xylem_status xylem_recv(xylem_communicator* communicator,
                        void* buffer,
                        size_t count,
                        xylem_data_type type,
                        uint32_t from,
                        uint32_t tag,
                        xylem_work** work) {
  const auto source = from == XYLEM_ANY_SOURCE ? std::nullopt : std::optional(from);
  return xylem::c::begin_move(communicator, type, work,
                              [&](const Communicator& on, DataType element) -> Result<Work> {
                                return on.recv({buffer, count, element}, source, tag);
                              });
}
