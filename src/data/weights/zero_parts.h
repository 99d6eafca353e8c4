// Determines, for each weight of a DeepSpeed checkpoint and for each optimizer array of that weight,
// which elements of which stored tensors it consists of. The errors are those of zero_checkpoint.h.
#pragma once
#include <map>

#include "data/weights/tensor_pieces.h"
#include "data/weights/zero_checkpoint.h"
#include "data/weights/zero_files.h"

namespace spillway::data {

struct ZeroWeight {
  TensorInfo info;
  TensorPieces values;
  std::map<std::string, TensorPieces> arrays;  // by the name of the optimizer's array, such as "exp_avg"
};

struct ZeroParts {
  std::filesystem::path folder;
  PieceTensors tensors;
  std::vector<ZeroWeight> weights;
  ZeroCheckpoint::Standing standing;
};

ZeroParts zero_parts(const std::filesystem::path& folder);

}  // namespace spillway::data
