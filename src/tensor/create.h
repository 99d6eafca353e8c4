// New tensors by what they hold, on the device of the stream in force, in PyTorch's words (empty, zeros and copies: tensor.h). A number is
// rounded to the type to the nearest (bf16 and f16: of its f32). Random ones are a function of the key and the element's place alone,
// whatever the device, the number of threads and what was drawn before: a key for each tensor (RandomKey{seed}.derive("name")).
#pragma once
#include <initializer_list>
#include <vector>

#include "base/random.h"
#include "tensor/tensor.h"

namespace spillway {

/// All `value`. Throws Error(usage), as the others here, where an int type or bool cannot hold a value.
Tensor full(const Shape& shape, double value, DType dtype = DType::f32);
Tensor ones(const Shape& shape, DType dtype = DType::f32);
/// The values in row-major order: tensor_of({1, 2, 3, 4}, {2, 2}). Throws Error(usage) unless there is one for each element.
Tensor tensor_of(std::initializer_list<double> values, const Shape& shape, DType dtype = DType::f32);
/// begin + i step below `end` (above it, of a negative step), computed in fp64: ceil((end - begin) / step) of them, [N].
Tensor arange(double begin, double end, double step = 1, DType dtype = DType::f32);
/// Standard normal.
Tensor randn(const Shape& shape, RandomKey key, DType dtype = DType::f32);
/// Uniform in [lowest, highest).
Tensor uniform(const Shape& shape, RandomKey key, double lowest = 0, double highest = 1, DType dtype = DType::f32);

/// The number of that type that lies there, widened.
double load_wide(const std::byte* at, DType dtype);
/// The elements of a view of any type and any strides, widened, in row-major order; on the meta device none. Of a GPU's tensor the stream
/// in force must be that GPU's; it is waited for.
std::vector<double> values_of(const Tensor& t);

}  // namespace spillway
