// Binds an operation twice: as a function of the module, and as a method of Tensor, which is the function's first argument.
#pragma once
#include "python/module/arrays.h"

namespace spillway::python {

struct Home {
  nb::module_& module;
  nb::class_<Array>& tensor;
  /// Defines a function of the module, whose first argument is `input`, and a method of Tensor.
  template <class F, class... Extra>
  void def(const char* name, const F& f, const Extra&... extra) const {
    module.def(name, f, nb::arg("input"), extra...);
    tensor.def(name, f, extra...);
  }
};

/// Returns an axis of x counted from the front. Throws WrongIndex if x has no such axis; a tensor without axes has axis 0.
int from_front(const Array& x, i64 axis);
/// Returns the axis that an argument `dim` or its other name `axis` gives; nothing if both are None.
std::optional<int> one_of(const Array& x, const std::optional<Whole>& dim, const std::optional<Whole>& axis);

}  // namespace spillway::python
