// A named weight. Its Storage's identity is fixed; whether its bytes are there is the business of whoever runs the block (or of
// nn/eager.h for the plain eager way). `id` is its index in the model.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "base/random.h"
#include "kernels/quantized/quantized.h"

namespace spillway::nn {

struct Initializer {
  enum class Kind { zeros, ones, normal, uniform } kind = Kind::zeros;
  double std = 0;  // of normal and uniform, whose mean is 0
};

struct Parameter {
  std::string name;  // Hugging Face's
  Shape shape;
  DType dtype = DType::f32;
  Initializer init;
  u32 id = 0;
  bool frozen = false;                                          // gets no gradient and no optimizer state
  bool statistic = false;                                       // moved by kStatisticMomentum, below
  bool of_ids = false;                                          // a row for each token, position or class
  kernels::WeightFormat format = kernels::WeightFormat::plain;  // what is not plain is never trained
  double positions = 1;              // products it enters for each position of the loss: a convolution's one an output pixel
  std::shared_ptr<Storage> storage;  // vacant; whole parameter, contiguous

  /// Of one that is not plain: its units, as words of `dtype`.
  Tensor value() const { return Tensor(storage, 0, is_plain() ? shape : Shape{stored_elems()}, dtype); }
  i64 elems() const { return shape.elems(); }
  /// Elements of `dtype` that it takes.
  i64 stored_elems() const { return is_plain() ? elems() : kernels::quantized_bytes(format, elems()) / size_of(dtype); }
  /// A map from features to features, which rules of matrices step as one.
  bool is_matrix() const { return shape.rank() == 2 && !of_ids && !statistic; }
  bool is_plain() const { return format == kernels::WeightFormat::plain; }
};

/// A running statistic is no weight that is trained: what flows to it as its gradient is a micro-batch's own value, and a step moves it by
/// this share (PyTorch's default momentum) of the way to their mean over all micro-batches of the step, whatever the optimizer is.
constexpr double kStatisticMomentum = 0.1;

/// PyTorch's default of linear and convolution layers, weight and bias: uniform within 1/sqrt(inputs of one output) of zero.
Initializer uniform_by_inputs(i64 inputs);

/// With a vacant storage on the device of the stream in force; its id comes from Sequential::push. Frozen unless it is plain.
std::shared_ptr<Parameter> make_parameter(std::string name, const Shape& shape, DType dtype, Initializer init,
                                          kernels::WeightFormat format = kernels::WeightFormat::plain);

/// Initial values of elements [begin, begin + out.size()) in fp64, drawn on the host: a function of (seed, name, element index) alone.
void initial_values(const Parameter& parameter, u64 seed, i64 begin, std::span<double> out);

/// Elements [begin, begin + out.size()) of a parameter, in fp64.
using ParameterValues = std::function<void(const Parameter&, i64 begin, std::span<double> out)>;

/// Bytes [begin, begin + out.size()) of what one that is not plain takes, made of its values.
void quantized_values(const Parameter& parameter, const ParameterValues& values, i64 begin, std::span<std::byte> out);

}  // namespace spillway::nn
