#include "data/weights/tensor_pieces.h"

#include <algorithm>

#include "base/error.h"

namespace spillway::data {

size_t PieceTensors::add(size_t file, TorchTensor tensor) {
  tensors.emplace_back(file, std::move(tensor));
  return tensors.size() - 1;
}

void PieceTensors::read(std::span<const TensorPiece> pieces, i64 begin, std::span<double> out) const {
  if (out.empty()) return;
  auto piece = std::ranges::upper_bound(pieces, begin, {}, &TensorPiece::at) - 1;
  for (size_t done = 0; done < out.size(); ++piece) {
    require(piece >= pieces.begin() && piece < pieces.end(), "[weights] expected to read elements inside the weight");
    const i64 within = begin + static_cast<i64>(done) - piece->at;
    const auto some =
        out.subspan(done, static_cast<size_t>(std::min<i64>(piece->elems - within, std::ssize(out) - static_cast<i64>(done))));
    const auto& [file, tensor] = tensors[piece->tensor];
    read_wide(*archives->open(file), tensor, piece->begin + within, some);
    done += some.size();
  }
}

}  // namespace spillway::data
