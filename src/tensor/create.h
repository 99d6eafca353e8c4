// Creates new tensors on the device of the current stream, with PyTorch's names (empty, zeros and copies are in tensor.h). Numbers are
// rounded to the nearest value of the dtype (bf16 and f16 are rounded from the f32 value). Random values depend only on the key and the
// element's index, not on the device, the number of threads or earlier draws; use one key per tensor (RandomKey{seed}.derive("name")).
#pragma once
#include <initializer_list>
#include <vector>

#include "base/random.h"
#include "tensor/tensor.h"

namespace spillway {

/// Returns a tensor filled with `value`. full() and the other functions of this
/// header throw Error(usage) if an integer type or bool cannot hold a value.
Tensor full(const Shape& shape, double value, DType dtype = DType::f32);
Tensor ones(const Shape& shape, DType dtype = DType::f32);
/// Returns a tensor with the given values in row-major order: tensor_of({1, 2, 3, 4}, {2, 2}). Throws Error(usage) unless there is one
/// value for each element.
Tensor tensor_of(std::initializer_list<double> values, const Shape& shape, DType dtype = DType::f32);
/// Returns begin + i * step for all i while this value is below `end` (above `end`, if step
/// is negative), computed in fp64. The shape is [N] with N = ceil((end - begin) / step).
Tensor arange(double begin, double end, double step = 1, DType dtype = DType::f32);
/// Returns a tensor of standard normal random values.
Tensor randn(const Shape& shape, RandomKey key, DType dtype = DType::f32);
/// Returns a tensor of random values uniform in [lowest, highest).
Tensor uniform(const Shape& shape, RandomKey key, double lowest = 0, double highest = 1, DType dtype = DType::f32);

/// Reads the number of type `dtype` stored at `at` and converts it to double.
double load_wide(const std::byte* at, DType dtype);
/// Returns the elements of a view of any type and any strides as doubles in row-major order. A meta tensor gives an empty list. For a GPU
/// tensor the current stream must belong to that GPU; the call waits for it.
std::vector<double> values_of(const Tensor& t);

}  // namespace spillway
