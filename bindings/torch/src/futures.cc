// SPDX-License-Identifier: Apache-2.0
#include "futures.h"

#include "origin.h"
#include "task.h"

#include <torch/csrc/jit/python/pybind_utils.h>

#include <memory>
#include <utility>

namespace py = pybind11;

namespace xylem::pytorch {
namespace {

using torch::jit::PythonFutureWrapper;

/// The future of a task, or one that then() has returned for it. Its second base hides the
/// shared_from_this() of the first: pybind11 would use it to make a derived class of the base,
/// which has no virtual functions. So callbacks get another wrapper of the same future.
// NOLINTNEXTLINE(misc-multiple-inheritance)
struct VISIBILITY_HIDDEN TaskFuture : PythonFutureWrapper,
                                      std::enable_shared_from_this<TaskFuture> {
  /// `calls` is the origin of the calls that callbacks make.
  TaskFuture(c10::intrusive_ptr<c10::ivalue::Future> future, Origin calls)
      : PythonFutureWrapper(std::move(future)), origin(calls) {}

  std::shared_ptr<TaskFuture> then_run(py::function callback) const {
    const auto child = plain()->then(with_origin(std::move(callback)));
    return std::make_shared<TaskFuture>(child->fut, origin);
  }
  void run_when_done(py::function callback) const {
    plain()->add_done_callback(with_origin(std::move(callback)));
  }

  /// The same callback. It may run here and now, on another thread later, or within the wait() of a
  /// work.
  py::cpp_function with_origin(py::function callback) const {
    return {[calls = origin, callback = std::move(callback)](const py::object& future) {
      const OriginScope within(calls);
      return callback(future);
    }};
  }

  std::shared_ptr<PythonFutureWrapper> plain() const {
    return std::make_shared<PythonFutureWrapper>(fut);
  }

  const Origin origin;
};

/// Wraps the result of collect_all(): if one of `parts` is a future of a Xylem call, callbacks of
/// the result are callbacks of an unknown call.
py::object collected(const py::object& all, const py::iterable& parts) {
  for (const py::handle part : parts) {
    if (!py::isinstance<TaskFuture>(part)) continue;
    if (!part.cast<const TaskFuture&>().origin.is_program()) {
      const auto& future = all.cast<const PythonFutureWrapper&>().fut;
      return py::cast(std::make_shared<TaskFuture>(future, Origin{Origin::Kind::unknown, 0, 0}));
    }
  }
  return all;
}

}  // namespace

void define_futures(py::module_& module) {
  py::class_<TaskFuture, std::shared_ptr<TaskFuture>, PythonFutureWrapper>(module, "Future",
                                                                           py::module_local())
      .def("then", &TaskFuture::then_run, py::arg("callback"))
      .def("add_done_callback", &TaskFuture::run_when_done, py::arg("callback"));
  module.def("collected", &collected, py::arg("all"), py::arg("parts"));
  // Functions of torch that return a work return this type if it is one of Xylem's.
  py::class_<Task, c10::intrusive_ptr<Task>, c10d::Work>(module, "Work")
      .def("get_future", [](Task& task) {
        return std::make_shared<TaskFuture>(task.getFuture(), task.origin_of_callbacks());
      });
}

}  // namespace xylem::pytorch
