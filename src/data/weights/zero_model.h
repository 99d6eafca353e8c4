// Reads the *_model_states.pt files of a DeepSpeed checkpoint: everything that is not in the optimizer's files. Errors as in
// zero_checkpoint.h.
#pragma once
#include <map>

#include "data/weights/torch_tree.h"

namespace spillway::data {

struct NamedShape {
  std::string name;
  std::vector<i64> sizes;
  i64 elems = 0;
  /// Returns the tensor's description. `foreign` is as in TorchTensor.
  TensorInfo info(DType dtype, std::string_view foreign = {}) const;
};

struct NamedTensor {
  std::string name;
  TorchTensor tensor;
};

struct ZeroModel {
  i64 steps = 0, skipped = 0, samples = 0;
  std::string version;  // DeepSpeed's version; empty if unknown
  // Trained parameters of each optimizer group, in the order in which they are stored there.
  std::vector<std::vector<NamedShape>> groups;
  std::vector<NamedShape> frozen;
  // The values of each frozen parameter: all of them, or with ZeRO-3 this rank's part.
  std::vector<TorchTensor> frozen_values;
  std::vector<NamedTensor> buffers;  // tensors that are not trained, such as running statistics of batch norm
  // The weights in the dtype in which the model computes; empty tensors with ZeRO-3.
  std::map<std::string, TorchTensor, std::less<>> module;
  // Tied parameters: a second name, and the name of the parameter that it refers to.
  std::vector<std::pair<std::string, std::string>> shared;
};

ZeroModel zero_model(const TorchArchive& archive);

/// Returns true for the Python globals that a DeepSpeed pickle may refer to beside those of tensors: DeepSpeed's own classes, and common
/// plain ones of objects that a program may have saved along. Their values are ignored.
bool belongs_to_deepspeed(std::string_view global);
constexpr std::string_view kDeepSpeedCure = "save the checkpoint again without the client_state that holds this object";

}  // namespace spillway::data
