// SPDX-License-Identifier: Apache-2.0
#include "futures.h"

#include "pending.h"
#include "sparse.h"
#include "task.h"

#include <torch/csrc/jit/python/pybind_utils.h>

#include <memory>
#include <utility>

namespace py = pybind11;

namespace xylem::pytorch {
namespace {

using torch::jit::PythonFutureWrapper;

/// The future of a task, or a future that then() has returned for such a future. The second base
/// makes shared_from_this() ambiguous, which hides it from pybind11: pybind11 cannot use the
/// shared_from_this() of a base class without virtual functions. Torch's then() and
/// add_done_callback() call shared_from_this(), so they are called on another wrapper of the same
/// future (plain()).
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

  /// Wraps the callback so that the calls that it makes have the origin `origin`. The callback may
  /// run at once, later on another thread, or within the wait() of a work.
  py::cpp_function with_origin(py::function callback) const {
    return {[calls = origin, callback = std::move(callback)](const py::object& future) {
      const Pending::InCallback within(calls);
      return callback(future);
    }};
  }

  std::shared_ptr<PythonFutureWrapper> plain() const {
    return std::make_shared<PythonFutureWrapper>(fut);
  }

  const Origin origin;
};

/// Converts the future `all`, which torch has made of the futures `parts`. If callbacks of any of
/// the parts count as callbacks, and not as the program, so do callbacks of the result.
py::object collected(const py::object& all, const py::iterable& parts) {
  for (const py::handle part : parts) {
    if (!py::isinstance<TaskFuture>(part)) continue;
    if (!part.cast<const TaskFuture&>().origin.is_program()) {
      const auto& future = all.cast<const PythonFutureWrapper&>().fut;
      return py::cast(std::make_shared<TaskFuture>(future, Origin{Origin::kUnknown, 0}));
    }
  }
  return all;
}

/// Defines the Python type of Xylem's class OurWork. Functions of torch then return objects of this
/// type for works of the class.
template <typename OurWork>
void define_work(py::module_& module, const char* name) {
  py::class_<OurWork, c10::intrusive_ptr<OurWork>, c10d::Work>(module, name)
      .def("get_future", [](OurWork& work) {
        return std::make_shared<TaskFuture>(work.getFuture(), work.origin_of_callbacks());
      });
}

}  // namespace

void define_futures(py::module_& module) {
  py::class_<TaskFuture, std::shared_ptr<TaskFuture>, PythonFutureWrapper>(module, "Future",
                                                                           py::module_local())
      .def("then", &TaskFuture::then_run, py::arg("callback"))
      .def("add_done_callback", &TaskFuture::run_when_done, py::arg("callback"));
  module.def("collected", &collected, py::arg("all"), py::arg("parts"));
  define_work<Task>(module, "Work");
  define_work<SparseTask>(module, "SparseWork");
}

}  // namespace xylem::pytorch
