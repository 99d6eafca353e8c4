#include "python/module/own_data.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "python/module/arrays.h"
#include "python/module/own_model.h"

namespace spillway::python {
namespace {

// Returns the dictionary's entry with this name; an invalid object if there is none.
nb::object entry_of(const nb::dict& sample, const std::string& name) {
  return nb::borrow(PyDict_GetItemString(sample.ptr(), name.c_str()));
}

std::string names_in(const nb::dict& sample) {
  std::string names;
  for (const auto& [name, value] : sample) names += (names.empty() ? "" : ", ") + words_of(name);
  return names.empty() ? "none" : names;
}

nb::dict dictionary(const nb::object& sample, const std::string& where) {
  if (nb::isinstance<nb::dict>(sample)) return nb::cast<nb::dict>(sample);
  throw WrongType(where + ": expected a dictionary with an array for each name, such as {\"x\": x, \"y\": y}, got " + kind_of(sample));
}

class PythonSource final : public data::TensorSource {
 public:
  PythonSource(const OwnSequence& sequence, std::vector<InputShape> inputs, Raised& raised)
      : sequence_(sequence), inputs_(std::move(inputs)), raised_(raised) {}

  i64 samples() const override { return sequence_.count; }

  void read(i64 index, std::span<const Tensor> out) const override {
    const Locked locked;
    const RunCode code;
    const std::string where = sequence_.argument + "[" + std::to_string(index) + "]";
    raised_.run(where, [&] { take(sequence_.samples[nb::int_(index)], where, out); });
  }

 private:
  void take(const nb::object& given, const std::string& where, std::span<const Tensor> out) const {
    const nb::dict sample = dictionary(given, where);
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const InputShape& input = inputs_[i];
      const nb::object array = entry_of(sample, input.name);
      if (!array.is_valid() || nb::len(sample) != inputs_.size())
        throw Error(ErrorCode::data,
                    "[data] " + where + ": expected the names of the first sample (" + names_of_inputs() + "), got " + names_in(sample));
      const std::string name = where + "[" + input.name + "]";
      const Tensor values = copy_of(array, name.c_str());
      if (values.shape() != input.shape)
        throw Error(ErrorCode::data, "[data] " + name + ": expected the shape of the first sample, " + to_string(input.shape) + ", got " +
                                         to_string(values.shape()));
      if (!is_floating(input.dtype) && is_floating(values.dtype()))
        throw Error(ErrorCode::data,
                    "[data] " + name + ": expected whole numbers as in the first sample, got " + std::string(to_string(values.dtype())));
      const Running running;
      const Tensor same = converted(values, input.dtype, is_floating(input.dtype) ? Keep::nearest : Keep::whole);
      if (same.elems() > 0) std::memcpy(out[i].raw(), same.raw(), static_cast<size_t>(same.bytes()));
    }
  }

  std::string names_of_inputs() const {
    std::string names;
    for (const InputShape& input : inputs_) names += (names.empty() ? "" : ", ") + input.name;
    return names;
  }

  const OwnSequence& sequence_;
  const std::vector<InputShape> inputs_;
  Raised& raised_;
};

}  // namespace

std::vector<InputShape> inputs_of(const nb::object& sample, DType floats, const std::string& argument) {
  std::vector<InputShape> inputs;
  for (const auto& [name, array] : dictionary(sample, argument)) {
    const std::string text = words_of(name);
    const Tensor values = copy_of(nb::borrow(array), (argument + "[" + text + "]").c_str());
    if (values.rank() >= Shape::kMaxRank)
      throw WrongValue(argument + "[" + text + "]: expected at most 5 axes, because the rows of a batch are one more, got " +
                       to_string(values.shape()));
    inputs.push_back({text, values.shape(), is_floating(values.dtype()) ? floats : values.dtype()});
  }
  if (inputs.empty()) throw WrongValue(argument + ": expected a dictionary with at least one array, got an empty one");
  return inputs;
}

std::shared_ptr<data::TensorSource> source_of(const OwnSequence& sequence, const std::vector<InputShape>& inputs, Raised& raised) {
  return std::make_shared<PythonSource>(sequence, inputs, raised);
}

}  // namespace spillway::python
