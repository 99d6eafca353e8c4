// Weights that lie in pieces in the tensors of many files of torch.save's, as ranks of a training run wrote them. Values.
#pragma once
#include "data/weights/torch_archives.h"
#include "data/weights/torch_tree.h"

namespace spillway::data {

/// Elements [begin, begin + elems) of a tensor, row-major, are [at, at + elems) of the weight.
struct TensorPiece {
  size_t tensor = 0;
  i64 begin = 0, elems = 0, at = 0;
};
using Pieces = std::vector<TensorPiece>;  // all of a weight, in its order

struct PieceTensors {
  std::unique_ptr<TorchArchives> archives = std::make_unique<TorchArchives>();
  std::vector<std::pair<size_t, TorchTensor>> tensors;  // the file each lies in

  size_t add(size_t file, TorchTensor tensor);
  /// Elements [begin, begin + out.size()) of the weight that the pieces make up, widened to fp64. Thread-safe once all are added.
  void read(std::span<const TensorPiece> pieces, i64 begin, std::span<double> out) const;
};

}  // namespace spillway::data
