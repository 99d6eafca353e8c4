// Sums the losses that a model computed for the rows of a batch, as training needs them: one sum in fp64,
// without the rows of padding. The gradient of the sum includes the loss scale and the number of targets.
#pragma once
#include "autograd/tape.h"

namespace spillway::ops {

using autograd::Variable;

/// Returns the sum of losses[B, ...] over the rows whose mask[B] (u8) is not 0, as an f64 scalar; an undefined
/// mask counts all rows. The sum is computed in fp64 in order of the elements. The gradient of an element in a
/// counted row is gradient_factor times the incoming gradient. In another row the gradient is 0, whatever the
/// value of the element. Throws Error(bug) if the losses do not have one row for each element of the mask.
Variable sum_of_rows(const Variable& losses, const Tensor& mask_B, double gradient_factor);

}  // namespace spillway::ops
