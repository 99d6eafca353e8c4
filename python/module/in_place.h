// Writes into the memory of a tensor: methods whose names end with "_", operators such as +=, and x[key] = value. As in PyTorch, a write is
// recorded if what is written or what it was computed from requires a gradient, and a later backward() that needs the old values is
// refused.
#pragma once
#include <string>

#include "python/module/operand.h"

namespace spillway::python {

/// Throws Error(usage) or WrongValue if this tensor cannot be written to: a leaf while operations are recorded, a tensor in a block's
/// forward, or a copy of elements that PyTorch would have written to. `name` is that of the method.
void check_writable(const Array& self, const std::string& name);
/// Returns the tensor for an operation whose result is written to it: if it is recorded, a copy of its values with the same history.
Array before_write(const Array& self);
/// Replaces the values of `self` by `values`, which broadcast to its shape. Refuses floats for a tensor of whole numbers, and numbers for
/// bools, unless `any_type` is set.
void write(Array& self, const Array& values, const std::string& name, bool any_type = false);

}  // namespace spillway::python
