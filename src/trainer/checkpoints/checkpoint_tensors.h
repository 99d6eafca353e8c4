// Lists the tensors that a checkpoint's optimizer.safetensors holds for each parameter, including a master copy
// of bf16 and f16 weights. Both the code that writes checkpoints and the code that reads them use this list.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "models/lora.h"
#include "models/weights.h"
#include "optim/factors.h"
#include "optim/tile_values.h"

namespace spillway::trainer {

constexpr const char *kWeightsName = "model.safetensors", *kStateName = "optimizer.safetensors", *kConfigName = "config.json";
constexpr const char* kWhole = "whole";         // key in manifest.json: the folder of the model of several parts (ModelSource::whole)
constexpr const char* kOwnModel = "own_model";  // key in manifest.json: the name of a model that a program built itself
constexpr const char* kStanding = "standing";   // key of Standing in manifest.json and in to_record()'s text

struct StateTensor {
  std::string suffix;  // text after the parameter's name: ".exp_avg" and so on, the names of torch.optim
  optim::StatePart part;
  Shape shape;
};

/// Returns the format in which the state of this parameter is stored, given the format of the model.
inline optim::StateFormat format_of(const nn::Parameter& parameter, const optim::StateFormat& format) {
  if (parameter.statistic) return format.without_arrays();
  if (format.rule == optim::Rule::adafactor && parameter.shape.rank() >= 2) return format.factored(1);
  return parameter.is_matrix() ? format : format.beside_matrices();
}

/// Returns the state tensors of one parameter. A frozen parameter has none.
inline std::vector<StateTensor> state_tensors(const nn::Parameter& parameter, optim::StateFormat format) {
  std::vector<StateTensor> all;
  if (parameter.frozen) return all;
  format = format_of(parameter, format);
  const Shape& shape = parameter.shape;
  if (is_half(format.weight)) all.push_back({".master", optim::StatePart::master, shape});
  for (const optim::StateArrayName& array : state_array_names(format.rule))
    all.push_back({std::string(".") + array.torch, optim::array_part(static_cast<int>(all.size()) - is_half(format.weight)), shape});
  if (format.factors > 0) {
    all.push_back({".row_var", optim::StatePart::rows, optim::row_factors_shape(shape)});
    all.push_back({".col_var", optim::StatePart::columns, optim::column_factors_shape(shape)});
  }
  if (format.average) all.push_back({models::kAverageSuffix, optim::StatePart::average, shape});
  return all;
}

/// Returns the name of the file with the weights of a checkpoint of this model. It is not model.safetensors if Hugging Face folders store
/// parameters as parts of larger tensors (nn::Parameter::stored), because a checkpoint has each under its own name.
inline const char* weights_name(const nn::Sequential& model) {
  if (models::has_adapters(model)) return models::kAdapterName;
  return std::ranges::any_of(model.parameters, [](const auto& p) { return p->is_part(); }) ? data::kOwnWeights : kWeightsName;
}

inline DType state_dtype(const optim::StateFormat& format) { return format.weight == DType::f64 ? DType::f64 : DType::f32; }

}  // namespace spillway::trainer
