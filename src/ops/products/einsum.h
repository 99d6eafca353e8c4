// Einstein's summation of two tensors (torch.einsum): f32, f64, bf16 and f16 (summed in f32), inputs of any strides.
#pragma once
#include <string>

#include "autograd/tape.h"

namespace spillway::ops {

using autograd::Variable;

/// "bij,bjk->bik": one letter for each axis of a and of b, and those of the result in its order; what it has not is summed over. Without
/// "->" the result has the letters that stand once, in the order of the alphabet, capitals first. Spaces do not count. "..." once in an
/// input stands for its other axes, from the last one back the same in both: where they differ one has extent 1 and is stretched; without
/// "->" they come first, and a result without "..." is summed over them. One batched matmul() of the inputs, permuted; axes that one input
/// alone has and the result has not are summed before, and rounded. Gradients are rounded to their input's type on the way, a parameter's
/// too. Throws Error(bug), with the place in the equation (from 0), on another number of inputs, a letter twice in one input or in the
/// result, one of the result that no input has, "..." twice, and all else; and, with the shapes, where letters and axes or extents do not
/// fit.
Variable einsum(const std::string& equation, const Variable& a, const Variable& b);

}  // namespace spillway::ops
