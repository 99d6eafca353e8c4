// Arithmetic, comparisons and logic between tensors, arrays, lists and numbers. Results have the dtypes that PyTorch gives.
#pragma once
#include "python/module/elements.h"
#include "python/module/operand.h"

namespace spillway::python {

/// Returns `a op b`, recorded for backward. Comparisons give bools. Logic and shifts are refused for floats.
Array arithmetic(Pairwise op, const Side& a, const Side& b);
/// Returns a / b, which is a float even for whole numbers.
Array quotient_of(const Side& a, const Side& b);

}  // namespace spillway::python
