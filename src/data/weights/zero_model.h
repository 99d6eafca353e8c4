// What the *_model_states.pt of a checkpoint of DeepSpeed's tell beside its optimizer's files. Values; errors as zero_checkpoint.h's.
#pragma once
#include <map>

#include "data/weights/torch_tree.h"

namespace spillway::data {

struct NamedShape {
  std::string name;
  std::vector<i64> sizes;
  i64 elems = 0;
  /// `foreign` as TorchTensor's.
  TensorInfo info(DType dtype, std::string_view foreign = {}) const;
};

struct NamedTensor {
  std::string name;
  TorchTensor tensor;
};

struct ZeroModel {
  i64 steps = 0, skipped = 0, samples = 0;
  std::string version;                          // of DeepSpeed; empty: not known
  std::vector<std::vector<NamedShape>> groups;  // of the optimizer: trained parameters in the order in which they lie there
  std::vector<NamedShape> frozen;
  std::vector<TorchTensor> frozen_values;                   // of each: whole, with ZeRO-3 this rank's part
  std::vector<NamedTensor> buffers;                         // batch norm's running statistics and their like
  std::map<std::string, TorchTensor, std::less<>> module;   // as the model computes with them; empty ones with ZeRO-3
  std::vector<std::pair<std::string, std::string>> shared;  // a second name, and the parameter that it is of
};

ZeroModel zero_model(const TorchArchive& archive);

/// What a pickle of DeepSpeed's asks for beside tensors: its own classes, and the plain ones of what a program may have had saved with it.
/// They are passed over.
bool belongs_to_deepspeed(std::string_view global);
constexpr std::string_view kDeepSpeedCure = "save again without that client_state";

}  // namespace spillway::data
