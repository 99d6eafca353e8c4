// Which elements of which tensors of its files make up each weight of a checkpoint of DeepSpeed's, and each array of its optimizer. Values;
// errors as zero_checkpoint.h's.
#pragma once
#include <map>

#include "data/weights/torch_archives.h"
#include "data/weights/torch_tree.h"
#include "data/weights/zero_checkpoint.h"
#include "data/weights/zero_files.h"

namespace spillway::data {

/// Elements [begin, begin + elems) of a tensor are [at, at + elems) of the weight.
struct ZeroPiece {
  size_t tensor = 0;
  i64 begin = 0, elems = 0, at = 0;
};
using ZeroPieces = std::vector<ZeroPiece>;  // all of the weight, in its order

struct ZeroWeight {
  TensorInfo info;
  ZeroPieces values;
  std::map<std::string, ZeroPieces> arrays;  // "exp_avg"
};

struct ZeroParts {
  std::filesystem::path folder;
  std::unique_ptr<TorchArchives> archives = std::make_unique<TorchArchives>();
  std::vector<std::pair<size_t, TorchTensor>> tensors;  // the file each lies in
  std::vector<ZeroWeight> weights;
  ZeroCheckpoint::Standing standing;

  /// Elements [begin, begin + out.size()) of the weight or array that the pieces make up, widened to fp64. Thread-safe.
  void read(std::span<const ZeroPiece> pieces, i64 begin, std::span<double> out) const;
};

ZeroParts zero_parts(const std::filesystem::path& folder);

}  // namespace spillway::data
