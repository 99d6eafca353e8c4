#include "tensor/batch.h"

#include "base/error.h"

namespace spillway {

MicroBatch empty_batch(const std::vector<InputShape>& inputs, i64 rows) {
  MicroBatch batch;
  for (const InputShape& input : inputs) {
    if (input.shape.rank() >= Shape::kMaxRank)
      throw Error(ErrorCode::usage, "[inputs] expected at most " + std::to_string(Shape::kMaxRank - 1) + " dimensions of `" + input.name +
                                        "`, got " + to_string(input.shape));
    std::vector<i64> extents{rows};
    extents.insert(extents.end(), input.shape.extents().begin(), input.shape.extents().end());
    batch.inputs.push_back(empty(Shape(std::span<const i64>(extents)), input.dtype, input.name.c_str()));
  }
  batch.targets_BT = empty({rows}, DType::int32, "targets");
  batch.row_mask_B = empty({rows}, DType::uint8, "row mask");
  return batch;
}

}  // namespace spillway
