// Defines Parameter, a named weight. A parameter keeps one Storage object for as long as it lives; the code that runs the block
// (or nn/eager.h, for training without a plan) decides when the storage has memory. `id` is the parameter's index in the model.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/random.h"
#include "kernels/products/quantized.h"
#include "nn/stored_part.h"

namespace spillway::nn {

struct Initializer {
  enum class Kind { zeros, ones, normal, uniform } kind = Kind::zeros;
  double std = 0;  // the standard deviation of the kinds normal and uniform, whose mean is 0
};

struct Parameter {
  std::string name;  // the Hugging Face name of the parameter
  Shape shape;
  DType dtype = DType::f32;
  Initializer init;
  u32 id = 0;
  bool frozen = false;                                          // a frozen parameter gets no gradient and no optimizer state
  bool statistic = false;                                       // a running statistic, which steps update by kStatisticMomentum
  bool of_ids = false;                                          // true if rows belong to tokens, positions or classes, as in an embedding
  kernels::WeightFormat format = kernels::WeightFormat::plain;  // the storage format; only parameters of the format plain are trained
  // The number of multiplications with the parameter per position of the loss. A convolution multiplies once per output pixel.
  double positions = 1;
  std::shared_ptr<Storage> storage;  // the storage, without memory at first; it holds the whole parameter, contiguously
  // Writes elements [begin, begin + out.size()) of initial values that the calling program supplies, in place of those of `init`.
  // Thread-safe.
  std::function<void(i64 begin, std::span<double> out)> given;
  // The parts of larger tensors as which Hugging Face folders store the parameter; empty if they store it by itself. Folders are read that
  // have one of these forms, or the parameter under its own name. Exported folders have the first form, which may be whole_tensor() under
  // the parameter's own name.
  std::vector<StoredPart> stored;

  /// Returns a view of the whole parameter. For a quantized parameter the view shows the stored units as words of `dtype`.
  Tensor value() const { return Tensor(storage, 0, is_plain() ? shape : Shape{stored_elems()}, dtype); }
  i64 elems() const { return shape.elems(); }
  /// Returns the number of elements of type `dtype` that the storage of the parameter takes.
  i64 stored_elems() const { return is_plain() ? elems() : kernels::quantized_bytes(format, elems()) / size_of(dtype); }
  /// Returns whether the parameter maps features to features. Optimizers for matrices, such as Muon, update such a parameter as one matrix.
  bool is_matrix() const { return shape.rank() == 2 && !of_ids && !statistic; }
  /// Returns whether exported folders have the parameter as a part of a larger tensor.
  bool is_part() const { return !stored.empty() && stored.front().tensor != name; }
  bool is_plain() const { return format == kernels::WeightFormat::plain; }
};

/// The momentum of running statistics, which are not trained weights. In backward, a running statistic gets the micro-batch's value of the
/// same statistic as its gradient. A step then moves the statistic by this fraction (PyTorch's default momentum) towards the mean of these
/// values over all micro-batches of the step, whichever optimizer is used.
constexpr double kStatisticMomentum = 0.1;

/// Returns PyTorch's default for weight and bias of linear and convolution layers: uniform in [-b, b] with b = 1/sqrt(inputs), where
/// `inputs` is the number of inputs of one output.
Initializer uniform_by_inputs(i64 inputs);

/// Creates a parameter with a vacant storage (without memory) on the device of the current stream. Its id is assigned by Sequential::push.
/// A quantized parameter is frozen.
std::shared_ptr<Parameter> make_parameter(std::string name, const Shape& shape, DType dtype, Initializer init,
                                          kernels::WeightFormat format = kernels::WeightFormat::plain);

/// Computes the initial values of elements [begin, begin + out.size()) in
/// fp64 on the host. The values depend on (seed, name, element index) alone.
void initial_values(const Parameter& parameter, u64 seed, i64 begin, std::span<double> out);

/// A function that writes elements [begin, begin + out.size()) of a parameter to `out` in fp64.
using ParameterValues = std::function<void(const Parameter&, i64 begin, std::span<double> out)>;

/// Computes bytes [begin, begin + out.size()) of the stored form of a quantized parameter from its values.
void quantized_values(const Parameter& parameter, const ParameterValues& values, i64 begin, std::span<std::byte> out);

}  // namespace spillway::nn
