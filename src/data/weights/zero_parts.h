// Which elements of which tensors of its files make up each weight of a checkpoint of DeepSpeed's, and each array of its optimizer. Values;
// errors as zero_checkpoint.h's.
#pragma once
#include <map>

#include "data/weights/tensor_pieces.h"
#include "data/weights/zero_checkpoint.h"
#include "data/weights/zero_files.h"

namespace spillway::data {

struct ZeroWeight {
  TensorInfo info;
  Pieces values;
  std::map<std::string, Pieces> arrays;  // "exp_avg"
};

struct ZeroParts {
  std::filesystem::path folder;
  PieceTensors tensors;
  std::vector<ZeroWeight> weights;
  ZeroCheckpoint::Standing standing;
};

ZeroParts zero_parts(const std::filesystem::path& folder);

}  // namespace spillway::data
