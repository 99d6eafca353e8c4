#include "trainer/run/held_out.h"

#include <algorithm>
#include <cmath>

#include "base/types.h"

namespace spillway::trainer {

i64 held_out_micro_batches(const data::Loader& loader, i64 micro_batch_size) {
  return ceil_div(loader.validation_windows(), micro_batch_size);
}

namespace {

// Counts the rows whose target class is among the `places` classes with the largest logits (top-k accuracy). A
// class with a NaN logit counts as larger than all others. A row whose target class has a NaN logit is not counted.
i64 count_right(const std::vector<double>& logits_NK, std::span<const i32> targets_N, i64 places) {
  const size_t classes = logits_NK.size() / targets_N.size();
  i64 right = 0;
  for (size_t n = 0; n < targets_N.size(); ++n) {
    if (targets_N[n] < 0) continue;
    const std::span row = std::span(logits_NK).subspan(n * classes, classes);
    const auto target = static_cast<size_t>(targets_N[n]);
    i64 before = 0;
    for (size_t k = 0; k < classes; ++k) before += k != target && !(row[k] < row[target] || (row[k] == row[target] && k > target));
    right += before < places && !std::isnan(row[target]);
  }
  return right;
}

}  // namespace

HeldOutLoss held_out_loss(parallel::Rank& rank, const parallel::Mesh& mesh, const Peers& peers, const data::Loader& loader,
                          i64 micro_batches, const std::function<void(const HeldOutLoss&)>& so_far, const std::function<bool()>& stops) {
  const StreamScope scope(rank.input_stream());
  HeldOutLoss loss;
  for (i64 round = 0; loss.micro_batches < micro_batches; ++round) {
    const MicroBatch batch = loader.validation(round);
    const bool images = batch.images_NCHW.defined();
    std::vector<double> mine{rank.evaluate(batch), static_cast<double>(batch.counted_targets), 0, 0, 0};
    if (images) {
      const std::vector<double> logits = rank.logits(batch, 0);
      mine[2] = static_cast<double>(count_right(logits, batch.targets_BT.span<i32>(), 1));
      mine[3] = static_cast<double>(count_right(logits, batch.targets_BT.span<i32>(), 5));
    }
    mine[4] = stops();
    const std::vector<std::vector<double>> all = peers.gather(mine);
    for (int r = 0; r < mesh.data && loss.micro_batches < micro_batches; ++r) {
      const std::vector<double>& of = all[static_cast<size_t>(mesh.world_rank(r, 0))];
      loss.sum += of[0];
      loss.targets += static_cast<i64>(of[1]);
      if (images) loss.right = loss.right.value_or(0) + static_cast<i64>(of[2]);
      if (images) loss.among_five = loss.among_five.value_or(0) + static_cast<i64>(of[3]);
      ++loss.micro_batches;
    }
    so_far(loss);
    if (std::ranges::any_of(all, [](const auto& of) { return of[4] != 0; })) break;
  }
  return loss;
}

}  // namespace spillway::trainer
