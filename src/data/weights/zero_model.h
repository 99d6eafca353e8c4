// Reads the *_model_states.pt files of a DeepSpeed checkpoint, which hold everything
// except the optimizer's state. The errors are those of zero_checkpoint.h.
#pragma once
#include <map>

#include "data/torch/torch_tree.h"

namespace spillway::data {

struct NamedShape {
  std::string name;
  std::vector<i64> sizes;
  i64 elems = 0;
  /// Returns the tensor's description for the given dtype. `foreign` has the meaning of TorchTensor::foreign.
  TensorInfo info(DType dtype, std::string_view foreign = {}) const;
};

struct NamedTensor {
  std::string name;
  TorchTensor tensor;
};

struct ZeroModel {
  i64 steps = 0, skipped = 0, samples = 0;
  std::string version;  // DeepSpeed's version; empty if it is unknown
  // The trained parameters of each optimizer group, in the order in which the optimizer stores them.
  std::vector<std::vector<NamedShape>> groups;
  std::vector<NamedShape> frozen;
  // The values of each frozen parameter, in the order of `frozen`. Stages 1 and
  // 2 store all values; with ZeRO-3 `frozen_values` is the rank's part of them.
  std::vector<TorchTensor> frozen_values;
  std::vector<NamedTensor> buffers;  // tensors that are not trained, such as running statistics of batch norm
  // The weights by name, in the dtype in which the model computes. With ZeRO-3 these tensors are empty.
  std::map<std::string, TorchTensor, std::less<>> module;
  // The tied parameters (one weight used under two names): for each, its second name, and the name under which its values are stored.
  std::vector<std::pair<std::string, std::string>> shared;
};

ZeroModel zero_model(const TorchArchive& archive);

/// Returns true for the Python globals that a DeepSpeed pickle may refer to in addition to
/// those of tensors. They are DeepSpeed's own classes, and common plain classes of objects that
/// a program may have saved in the checkpoint. The reader ignores the values of such objects.
bool belongs_to_deepspeed(std::string_view global);
constexpr std::string_view kDeepSpeedCure = "save the checkpoint again without the client_state that holds this object";

}  // namespace spillway::data
