#include "app/run/held_out.h"

#include <algorithm>

#include "base/types.h"

namespace spillway::app {

i64 held_out_micro_batches(const data::Loader& loader, i64 micro_batch_size) {
  return ceil_div(loader.validation_windows(), micro_batch_size);
}

namespace {

i64 count_right(const std::vector<double>& logits_NK, std::span<const i32> targets_N) {
  const auto classes = std::ssize(logits_NK) / std::ssize(targets_N);
  i64 right = 0;
  for (size_t n = 0; n < targets_N.size(); ++n) {
    const auto row = logits_NK.begin() + static_cast<std::ptrdiff_t>(n) * classes;
    right += std::max_element(row, row + classes) - row == targets_N[n];
  }
  return right;
}

}  // namespace

HeldOutLoss held_out_loss(parallel::Rank& rank, const parallel::Mesh& mesh, const Peers& peers, const data::Loader& loader,
                          i64 micro_batches, const std::function<void(const HeldOutLoss&)>& so_far) {
  const StreamScope scope(rank.input_stream());
  HeldOutLoss loss;
  for (i64 round = 0; loss.micro_batches < micro_batches; ++round) {
    const MicroBatch batch = loader.validation(round);
    const bool images = batch.images_NCHW.defined();
    std::vector<double> mine{rank.evaluate(batch), static_cast<double>(batch.counted_targets), 0};
    if (images) mine[2] = static_cast<double>(count_right(rank.logits(batch, 0), batch.targets_BT.span<i32>()));
    const std::vector<std::vector<double>> all = peers.gather(mine);
    for (int r = 0; r < mesh.data && loss.micro_batches < micro_batches; ++r) {
      const std::vector<double>& of = all[static_cast<size_t>(mesh.world_rank(r, 0))];
      loss.sum += of[0];
      loss.targets += static_cast<i64>(of[1]);
      if (images) loss.right = loss.right.value_or(0) + static_cast<i64>(of[2]);
      ++loss.micro_batches;
    }
    so_far(loss);
  }
  return loss;
}

}  // namespace spillway::app
