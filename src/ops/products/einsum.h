// Einstein summation over two tensors (torch.einsum), for f32, f64, bf16 and f16 (summed in f32) and inputs of any strides.
#pragma once
#include <string>

#include "autograd/tape.h"

namespace spillway::ops {

using autograd::Variable;

/// Computes an equation such as "bij,bjk->bik": one letter for each axis of a and of b, then the
/// letters of the result in their order. Letters that the result lacks are summed over. Without
/// "->" the result has the letters that occur once, in alphabetical order, capitals first. Spaces
/// are ignored. "..." may occur once in an input and stands for its remaining axes. These axes of
/// both inputs are matched from the last one backwards. Where their extents differ, one must be 1
/// and is broadcast. Without "->" these axes come first; a result without "..." is summed over
/// them. The work is one batched matmul() of the permuted inputs. An axis that only one input has
/// and the result lacks is summed before the product, and this sum is rounded. The gradients of
/// intermediate results are rounded to the dtype of the input, even if the input is a parameter.
/// Throws Error(bug), with the position in the equation (from 0), on any malformed equation: not
/// two inputs, a letter twice in one input or in the result, a result letter that no input has,
/// "..." twice. Throws Error(bug), with the shapes, if letters do not match axes or extents.
Variable einsum(const std::string& equation, const Variable& a, const Variable& b);

}  // namespace spillway::ops
