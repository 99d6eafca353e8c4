// Loops over elements in host memory, for what the library has no kernels for: arithmetic of whole numbers and bools, which is exact and
// wraps as PyTorch's does, and rarely used arithmetic of floats. On a GPU the operands are copied to the host and the result back.
#pragma once
#include <functional>
#include <vector>

#include "tensor/tensor.h"

namespace spillway::python {

enum class Pairwise {
  add,
  sub,
  mul,
  floor_div,
  remainder,
  pow,
  maximum,
  minimum,
  bit_and,
  bit_or,
  bit_xor,
  shift_left,
  shift_right,
  eq,
  ne,
  lt,
  le,
  gt,
  ge
};

/// Combines two tensors, which broadcast, element by element. The tensors have type `dtype`, which is not a float. The result has this type
/// too, or is bool for a comparison. Throws WrongValue on a division by 0 and on what PyTorch refuses for bools.
Tensor pairs_of_whole(Pairwise op, const Tensor& a, const Tensor& b, DType dtype);
/// Returns floor(a / b) or the remainder with the sign of b, for floats of one type.
Tensor floor_of_quotient(const Tensor& a, const Tensor& b);
Tensor remainder_of_quotient(const Tensor& a, const Tensor& b);
/// Returns f(x) for each element of a tensor of any type. f is computed in fp64.
Tensor each_wide(const Tensor& x, const std::function<double(double)>& f);
/// Returns f(x) for each element of a tensor of whole numbers.
Tensor each_whole(const Tensor& x, const std::function<i64(i64)>& f);

enum class Fold { sum, prod, max, min, any, all, argmax, argmin };
/// Reduces a tensor of whole numbers or bools over these axes, counted from the front. The result has the type of x for max and min, bool
/// for any and all, and i64 otherwise. For argmax and argmin there is one axis.
Tensor fold_whole(Fold fold, const Tensor& x, const std::vector<int>& axes, bool keep);
/// Returns the product of the elements of a float tensor over these axes.
Tensor product_of(const Tensor& x, const std::vector<int>& axes, bool keep);
Tensor running_sums_of_whole(const Tensor& x, int axis);

/// Returns x broadcast to `shape`, as a copy. x is of any type. Throws Error(bug) if it does not broadcast.
Tensor stretched(const Tensor& x, const Shape& shape);
/// Returns the rows of x[N, ...] at these places, each in [0, N); x is of any type.
Tensor rows_at(const Tensor& x, const std::vector<i64>& places);
/// Returns a copy of x[N, ...] whose rows at these places are those of `rows`, which has x's type.
Tensor with_rows(const Tensor& x, const std::vector<i64>& places, const Tensor& rows);

/// Calls compute(inputs), which computes a tensor in host memory. Inputs on a GPU are copied to host memory first. Returns the result on
/// the device of the current stream. If tensors have no values (meta device), returns a tensor of this shape and type without the call.
Tensor on_host(const std::vector<Tensor>& inputs, const Shape& shape, DType dtype,
               const std::function<void(const std::vector<Tensor>&, const Tensor&)>& compute);

}  // namespace spillway::python
