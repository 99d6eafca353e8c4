#include "nn/parameter.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace spillway::nn {

Initializer uniform_by_inputs(i64 inputs) { return {Initializer::Kind::uniform, 1 / std::sqrt(3.0 * static_cast<double>(inputs))}; }

std::shared_ptr<Parameter> make_parameter(std::string name, const Shape& shape, DType dtype, Initializer init) {
  auto parameter = std::make_shared<Parameter>();
  parameter->name = std::move(name);
  parameter->shape = shape;
  parameter->dtype = dtype;
  parameter->init = init;
  parameter->storage = Storage::vacant(Stream::current().device, shape.elems() * size_of(dtype));
  return parameter;
}

void initial_values(const Parameter& parameter, u64 seed, i64 begin, std::span<double> out) {
  const i64 end = begin + static_cast<i64>(out.size());
  if (begin < 0 || end > parameter.elems()) {
    throw Error(ErrorCode::bug, "[initial values] " + parameter.name + ": expected a range within its " +
                                    std::to_string(parameter.elems()) + " elements, got [" + std::to_string(begin) + ", " +
                                    std::to_string(end) + ")");
  }
  switch (parameter.init.kind) {
    case Initializer::Kind::zeros:
      std::ranges::fill(out, 0.0);
      return;
    case Initializer::Kind::ones:
      std::ranges::fill(out, 1.0);
      return;
    case Initializer::Kind::normal:
    case Initializer::Kind::uniform:
      break;
  }
  const RandomKey key = RandomKey{seed}.derive("initial weights").derive(parameter.name);
  u64 element = static_cast<u64>(begin);
  if (parameter.init.kind == Initializer::Kind::uniform) {
    const double width = parameter.init.std * std::sqrt(12.0);
    for (double& value : out) value = width * (uniform(key, 0, element++) - 0.5);
  } else {
    for (double& value : out) value = parameter.init.std * normal(key, 0, element++);
  }
}

}  // namespace spillway::nn
