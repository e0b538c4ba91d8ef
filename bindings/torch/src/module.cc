// SPDX-License-Identifier: Apache-2.0
//
// The Python module of the backend.
#include "backend.h"
#include "futures.h"
#include "recorder.h"
#include "streams.h"
#include "xylem/xylem.h"

#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace py = pybind11;

PYBIND11_MODULE(_C, module) {
  module.doc() = "Xylem's process groups for torch.distributed";
  module.attr("__version__") = std::string(xylem::version());
  module.attr("torch_version") = XYLEM_TORCH_VERSION;
  xylem::pytorch::define_futures(module);
  using xylem::pytorch::Recorder;
  module.def(
      "configure_record",
      [](std::size_t entries, std::string prefix) {
        Recorder::get().configure(entries, std::move(prefix));
      },
      py::arg("entries"), py::arg("prefix"));
  module.def(
      "record_stacks", [](bool are_recorded) { Recorder::get().record_stacks(are_recorded); },
      py::arg("are_recorded"));
  module.def("record", [] { return py::bytes(Recorder::get().pickled()); });
  module.def("dump", [] { return Recorder::get().dump(); });
  module.def(
      "dump_on_signal", [](int number) { Recorder::get().dump_on_signal(number); },
      py::arg("number"));
  module.def("leave_jobs", &xylem::Runtime::leave_all, py::call_guard<py::gil_scoped_release>());
  module.def("serve_private_device", &xylem::pytorch::serve_private_device);
  using xylem::pytorch::BlockingWait;
  py::enum_<BlockingWait>(module, "BlockingWait", py::module_local())
      .value("by_need", BlockingWait::by_need)
      .value("never", BlockingWait::never)
      .value("always", BlockingWait::always);
  module.def(
      "create",
      [](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
         std::chrono::milliseconds timeout, std::string name,
         std::vector<std::uint64_t> global_ranks,
         BlockingWait blocking_wait) -> c10::intrusive_ptr<c10d::Backend> {
        return c10::make_intrusive<xylem::pytorch::Backend>(
            store, xylem::pytorch::GroupOptions{rank, size, timeout, std::move(name),
                                                std::move(global_ranks), blocking_wait});
      },
      py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"), py::arg("name"),
      py::arg("global_ranks"), py::arg("blocking_wait") = BlockingWait::by_need,
      py::call_guard<py::gil_scoped_release>());
}
