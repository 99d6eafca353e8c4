// A named weight. Its Storage's identity is fixed; whether its bytes are there is the business of whoever runs the block (or of
// nn/eager.h for the plain eager way). `id` is its index in the model.
#pragma once
#include <memory>
#include <string>

#include "base/random.h"
#include "tensor/tensor.h"

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
  bool frozen = false;               // gets no gradient and no optimizer state
  i64 positions = 1;                 // products it enters for each position of the loss: a convolution's one an output pixel
  std::shared_ptr<Storage> storage;  // vacant; whole parameter, contiguous

  Tensor value() const { return Tensor(storage, 0, shape, dtype); }
  i64 elems() const { return shape.elems(); }
};

/// PyTorch's default of linear and convolution layers, weight and bias: uniform within 1/sqrt(inputs of one output) of zero.
Initializer uniform_by_inputs(i64 inputs);

/// With a vacant storage on the device of the stream in force; its id comes from Sequential::push.
std::shared_ptr<Parameter> make_parameter(std::string name, const Shape& shape, DType dtype, Initializer init);

/// Initial values of elements [begin, begin + out.size()) in fp64, drawn on the host: a function of (seed, name, element index) alone.
void initial_values(const Parameter& parameter, u64 seed, i64 begin, std::span<double> out);

}  // namespace spillway::nn
