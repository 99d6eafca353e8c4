// Describes and reads weights that are stored in pieces in several torch.save files, as the ranks of a training run write them.
#pragma once
#include "data/torch/torch_archives.h"
#include "data/torch/torch_tree.h"

namespace spillway::data {

/// A piece of a weight: elements [begin, begin + elems) of a stored tensor, in row-major order, are elements [at, at + elems) of the
/// weight.
struct TensorPiece {
  size_t tensor = 0;
  i64 begin = 0, elems = 0, at = 0;
};
using TensorPieces = std::vector<TensorPiece>;  // all pieces of one weight, sorted by their position in the weight

struct PieceTensors {
  std::unique_ptr<TorchArchives> archives = std::make_unique<TorchArchives>();
  std::vector<std::pair<size_t, TorchTensor>> tensors;  // each stored tensor, with the index of its file in `archives`

  size_t add(size_t file, TorchTensor tensor);
  /// Copies elements [begin, begin + out.size()) of the weight that consists of `pieces`, widened to fp64. Thread-safe once all tensors are
  /// added.
  void read(std::span<const TensorPiece> pieces, i64 begin, std::span<double> out) const;
};

}  // namespace spillway::data
