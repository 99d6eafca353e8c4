#include "nn/parameter.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"

namespace spillway::nn {

Initializer uniform_by_inputs(i64 inputs) { return {Initializer::Kind::uniform, 1 / std::sqrt(3.0 * static_cast<double>(inputs))}; }

std::shared_ptr<Parameter> make_parameter(std::string name, const Shape& shape, DType dtype, Initializer init,
                                          kernels::WeightFormat format) {
  auto parameter = std::make_shared<Parameter>();
  parameter->name = std::move(name);
  parameter->shape = shape;
  parameter->dtype = dtype;
  parameter->init = init;
  parameter->format = format;
  parameter->frozen = !parameter->is_plain();
  parameter->storage = Storage::vacant(Stream::current().device, parameter->stored_elems() * size_of(dtype));
  return parameter;
}

void initial_values(const Parameter& parameter, u64 seed, i64 begin, std::span<double> out) {
  const i64 end = begin + static_cast<i64>(out.size());
  if (begin < 0 || end > parameter.elems()) {
    throw Error(ErrorCode::bug, "[initial values] " + parameter.name + ": expected a range inside its " +
                                    std::to_string(parameter.elems()) + " elements, got [" + std::to_string(begin) + ", " +
                                    std::to_string(end) + ")");
  }
  if (parameter.given) return parameter.given(begin, out);
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

void quantized_values(const Parameter& parameter, const ParameterValues& values, i64 begin, std::span<std::byte> out) {
  using kernels::kUnitValues;
  constexpr i64 kUnitsAtOnce = 64;  // the number of quantized units per call of `values`; it is large, since a call may read a file
  const i64 each = kernels::unit_bytes(parameter.format), end = begin + static_cast<i64>(out.size());
  require(begin >= 0 && end <= parameter.stored_elems() * size_of(parameter.dtype),
          "[quantized values] expected a range of bytes inside the stored form of the parameter");
  std::vector<double> wide(kUnitsAtOnce * kUnitValues);
  std::vector<float> narrowed(wide.size());
  std::vector<std::byte> units(static_cast<size_t>(kUnitsAtOnce * each));
  for (i64 at = begin; at < end;) {
    const i64 first = at / each, skipped = at % each, taken = std::min(end - at, kUnitsAtOnce * each - skipped);
    const i64 first_value = first * kUnitValues,
              last = std::min(parameter.elems(), (first + ceil_div(skipped + taken, each)) * kUnitValues);
    const auto count = static_cast<size_t>(last - first_value);
    values(parameter, first_value, std::span(wide).first(count));
    std::ranges::transform(std::span(wide).first(count), narrowed.begin(), [](double x) { return static_cast<float>(x); });
    for (i64 v = 0; v < last - first_value; v += kUnitValues) {
      const auto of_unit = static_cast<size_t>(std::min(kUnitValues, last - first_value - v));
      kernels::quantize(parameter.format, std::span(narrowed).subspan(static_cast<size_t>(v), of_unit),
                        units.data() + v / kUnitValues * each);
    }
    std::copy_n(units.begin() + skipped, taken, out.begin() + (at - begin));
    at += taken;
  }
}

}  // namespace spillway::nn
