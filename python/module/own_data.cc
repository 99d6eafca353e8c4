#include "python/module/own_data.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "python/module/arrays.h"
#include "python/module/own_model.h"

namespace spillway::python {
namespace {

std::string names_in(const nb::dict& sample) {
  std::string names;
  for (const auto& [name, value] : sample) names += (names.empty() ? "" : ", ") + words_of(name);
  return names.empty() ? "none" : names;
}

std::string names_in(const std::vector<InputShape>& inputs) {
  std::string names;
  for (const InputShape& input : inputs) names += (names.empty() ? "" : ", ") + input.name;
  return names;
}

nb::dict dictionary(const nb::object& sample, const std::string& where) {
  if (nb::isinstance<nb::dict>(sample)) return nb::cast<nb::dict>(sample);
  throw WrongType(where + ": expected a dictionary with an array for each name, such as {\"x\": x, \"y\": y}, got " + kind_of(sample));
}

// Converts a NumPy number, which has no protocol for arrays, to a Python number. Returns any other object unchanged.
nb::object plain(const nb::handle& value) {
  const bool is_scalar = !is_untyped(nb::borrow(value)) && !nb::hasattr(value, "__dlpack__") && nb::hasattr(value, "item");
  return is_scalar ? value.attr("item")() : nb::borrow(value);
}

void check_rank(const Shape& shape, const std::string& name) {
  if (shape.rank() >= Shape::kMaxRank)
    throw WrongValue(name + ": expected at most 5 axes, because the rows of a batch are one more, got " + to_string(shape));
}

std::string part(const std::string& where, const std::string& name) { return where + "[" + name + "]"; }

class SequenceSource final : public data::TensorSource {
 public:
  SequenceSource(const OwnSamples& samples, Raised& raised) : samples_(samples), raised_(raised) {}

  i64 samples() const override { return samples_.count; }
  i64 targets(std::span<const Tensor> sample) const override { return samples_.targets(sample); }
  i64 most_targets() const override { return samples_.most_targets(); }
  bool is_stream() const override { return samples_.is_stream; }

  void read(i64 index, std::span<const Tensor> out) const override { read_row(index, index, out); }

  void read_row(i64 index, i64 row, std::span<const Tensor> out) const override {
    const Locked locked;
    const RunCode code;
    const std::string where = part(samples_.argument, std::to_string(index));
    raised_.run(where, [&] {
      take(samples_.of_torch ? samples_.sequence.attr("read")(index, row) : samples_.sequence[nb::int_(index)], where, out);
    });
  }

 private:
  void take(const nb::object& given, const std::string& where, std::span<const Tensor> out) const {
    const nb::dict sample = dictionary(given, where);
    for (size_t i = 0; i < samples_.inputs.size(); ++i) {
      const InputShape& input = samples_.inputs[i];
      PyObject* const found = PyDict_GetItemString(sample.ptr(), input.name.c_str());
      if (found == nullptr || nb::len(sample) != samples_.inputs.size())
        throw Error(ErrorCode::data, "[data] " + where + ": expected the names of the first sample (" + names_in(samples_.inputs) +
                                         "), got " + names_in(sample));
      write(readable_view(plain(found), part(where, input.name).c_str()), input, where, out[i]);
    }
  }

  static void write(const Tensor& values, const InputShape& input, const std::string& where, const Tensor& to) {
    if (values.shape() != input.shape)
      throw Error(ErrorCode::data, "[data] " + part(where, input.name) + ": expected the shape of the first sample, " +
                                       to_string(input.shape) + ", got " + to_string(values.shape()));
    if (!is_floating(input.dtype) && is_floating(values.dtype()))
      throw Error(ErrorCode::data, "[data] " + part(where, input.name) + ": expected whole numbers as in the first sample, got " +
                                       std::string(to_string(values.dtype())));
    if (to.elems() == 0) return;
    if (values.dtype() == input.dtype && values.is_contiguous())
      return static_cast<void>(std::memcpy(to.raw(), values.raw(), static_cast<size_t>(to.bytes())));
    const Running running;
    const Tensor same = converted(values, input.dtype, is_floating(input.dtype) ? Keep::nearest : Keep::whole);
    std::memcpy(to.raw(), same.raw(), static_cast<size_t>(to.bytes()));
  }

  const OwnSamples& samples_;
  Raised& raised_;
};

class ColumnSource final : public data::TensorSource {
 public:
  explicit ColumnSource(const OwnSamples& samples) : samples_(samples) {}

  i64 samples() const override { return samples_.count; }
  i64 targets(std::span<const Tensor> sample) const override { return samples_.targets(sample); }
  i64 most_targets() const override { return samples_.most_targets(); }

  void read(i64 index, std::span<const Tensor> out) const override {
    for (size_t i = 0; i < out.size(); ++i) {
      const i64 bytes = out[i].bytes();
      if (bytes > 0) std::memcpy(out[i].raw(), samples_.columns[i].raw() + index * bytes, static_cast<size_t>(bytes));
    }
  }

 private:
  const OwnSamples& samples_;
};

OwnSamples columns_of(const nb::dict& arrays, DType floats, const std::string& argument) {
  OwnSamples samples{{}, {}, -1, argument, {}};
  for (const auto& [key, array] : arrays) {
    const std::string name = words_of(key), where = part(argument, name);
    Tensor column = readable_view(nb::borrow(array), where.c_str());
    if (column.rank() == 0) throw WrongValue(where + ": expected an array with one row for each sample, got a number");
    if (samples.count >= 0 && column.size(0) != samples.count)
      throw WrongValue(where + ": expected one row for each sample, " + std::to_string(samples.count) +
                       " as in the arrays before it, got " + std::to_string(column.size(0)));
    samples.count = column.size(0);
    const DType dtype = is_floating(column.dtype()) ? floats : column.dtype();
    if (column.dtype() != dtype) {
      const Running running(Device::cpu(), column.bytes() >= kLongBytes);
      column = converted(column, dtype);
    }
    const auto extents = column.shape().extents();
    samples.inputs.push_back({name, Shape(std::vector<i64>(extents.begin() + 1, extents.end())), dtype});
    check_rank(samples.inputs.back().shape, where);
    samples.columns.push_back(std::move(column));
  }
  return samples;
}

}  // namespace

i64 OwnSamples::targets(std::span<const Tensor> sample) const {
  for (size_t i = 0; weight != Weight::one && i < inputs.size(); ++i) {
    if (inputs[i].name != "labels" || is_floating(inputs[i].dtype) || inputs[i].shape.rank() == 0) continue;
    const Tensor& labels = sample[i];
    const i64 each = size_of(labels.dtype()), row = inputs[i].shape[inputs[i].shape.rank() - 1];
    i64 counted = 0;
    for (i64 at = 0; at < labels.elems(); ++at) {
      if (weight == Weight::next_labels && at % row == 0) continue;
      counted += load_wide(labels.raw() + at * each, labels.dtype()) >= 0;
    }
    return counted;
  }
  return 1;
}

i64 OwnSamples::most_targets() const {
  for (const InputShape& input : inputs) {
    if (weight != Weight::one && input.name == "labels" && input.shape.rank() > 0) return std::max<i64>(1, input.shape.elems());
  }
  return 1;
}

OwnSamples own_samples(const nb::object& given, DType floats, const std::string& argument) {
  OwnSamples samples{given, {}, 0, argument, {}};
  if (nb::isinstance<nb::dict>(given)) {
    samples = columns_of(nb::cast<nb::dict>(given), floats, argument);
  } else {
    samples.count = static_cast<i64>(nb::len(given));
  }
  if (samples.count <= 0) throw WrongValue(argument + ": expected at least one sample, got none");
  if (!samples.columns.empty()) return samples;
  const std::string first = part(argument, "0");
  for (const auto& [key, array] : dictionary(given[nb::int_(0)], first)) {
    const std::string name = words_of(key);
    const Tensor values = copy_of(plain(array), part(first, name).c_str());
    check_rank(values.shape(), part(first, name));
    samples.inputs.push_back({name, values.shape(), is_floating(values.dtype()) ? floats : values.dtype()});
  }
  if (samples.inputs.empty()) throw WrongValue(first + ": expected a dictionary with at least one array, got an empty one");
  return samples;
}

std::shared_ptr<data::TensorSource> source_of(const OwnSamples& samples, Raised& raised) {
  if (!samples.columns.empty()) return std::make_shared<ColumnSource>(samples);
  return std::make_shared<SequenceSource>(samples, raised);
}

}  // namespace spillway::python
