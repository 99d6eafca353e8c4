// The loss of a model that computes a loss for each row itself, in the form that training needs: one sum in fp64 whose gradient carries the
// loss scale and the number of targets, and in which rows of padding do not count.
#pragma once
#include "autograd/tape.h"

namespace spillway::ops {

using autograd::Variable;

/// Returns the sum of losses[B, ...] over the rows whose mask[B] (u8) is not 0, as an f64 scalar; an undefined mask counts all rows. The
/// sum is computed in fp64 in order of the elements. Its gradient for a counted element is gradient_factor times the incoming gradient, and
/// 0 for the others, whatever they hold. Throws Error(bug) if the losses do not have one row for each element of the mask.
Variable sum_of_rows(const Variable& losses, const Tensor& mask_B, double gradient_factor);

}  // namespace spillway::ops
