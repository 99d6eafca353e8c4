// C++ operators for the ops of elementwise.h and pointwise.h, on variables, tensors (which are constants) and
// numbers. A number becomes a rank-0 tensor of the other operand's dtype and is rounded to it, except that x
// * number calls scale(). Comparisons return masks (uint8), so == of two variables gives a mask, not a bool.
#pragma once
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/pointwise.h"
#include "tensor/create.h"

namespace spillway::autograd {

inline Variable operator+(const Variable& a, const Variable& b) { return ops::add(a, b); }
inline Variable operator-(const Variable& a, const Variable& b) { return ops::sub(a, b); }
inline Variable operator*(const Variable& a, const Variable& b) { return ops::mul(a, b); }
inline Variable operator/(const Variable& a, const Variable& b) { return ops::div(a, b); }
inline Variable operator-(const Variable& x) { return ops::neg(x); }

inline Variable operator+(const Variable& a, double b) { return ops::add(a, full({}, b, a.dtype())); }
inline Variable operator-(const Variable& a, double b) { return ops::sub(a, full({}, b, a.dtype())); }
inline Variable operator*(const Variable& a, double b) { return ops::scale(a, b); }
inline Variable operator/(const Variable& a, double b) { return ops::div(a, full({}, b, a.dtype())); }
inline Variable operator+(double a, const Variable& b) { return ops::add(full({}, a, b.dtype()), b); }
inline Variable operator-(double a, const Variable& b) { return ops::sub(full({}, a, b.dtype()), b); }
inline Variable operator*(double a, const Variable& b) { return ops::scale(b, a); }
inline Variable operator/(double a, const Variable& b) { return ops::div(full({}, a, b.dtype()), b); }

inline Tensor operator==(const Variable& a, const Variable& b) { return ops::eq(a, b); }
inline Tensor operator!=(const Variable& a, const Variable& b) { return ops::ne(a, b); }
inline Tensor operator<(const Variable& a, const Variable& b) { return ops::lt(a, b); }
inline Tensor operator<=(const Variable& a, const Variable& b) { return ops::le(a, b); }
inline Tensor operator>(const Variable& a, const Variable& b) { return ops::gt(a, b); }
inline Tensor operator>=(const Variable& a, const Variable& b) { return ops::ge(a, b); }
inline Tensor operator==(const Variable& a, double b) { return ops::eq(a, b); }
inline Tensor operator!=(const Variable& a, double b) { return ops::ne(a, b); }
inline Tensor operator<(const Variable& a, double b) { return ops::lt(a, b); }
inline Tensor operator<=(const Variable& a, double b) { return ops::le(a, b); }
inline Tensor operator>(const Variable& a, double b) { return ops::gt(a, b); }
inline Tensor operator>=(const Variable& a, double b) { return ops::ge(a, b); }

}  // namespace spillway::autograd

namespace spillway {

// The operators are also declared in this namespace, so that argument-dependent lookup finds them for Tensor operands.
using autograd::operator+;
using autograd::operator-;
using autograd::operator*;
using autograd::operator/;
using autograd::operator==;
using autograd::operator!=;
using autograd::operator<;
using autograd::operator<=;
using autograd::operator>;
using autograd::operator>=;

}  // namespace spillway
