#include "app/held_out.h"

#include "base/types.h"

namespace spillway::app {

i64 held_out_micro_batches(const data::Loader& loader, i64 micro_batch_size) {
  return ceil_div(loader.validation_windows(), micro_batch_size);
}

HeldOutLoss held_out_loss(parallel::Rank& rank, const parallel::Mesh& mesh, const Peers& peers, const data::Loader& loader,
                          i64 micro_batches, const std::function<void(const HeldOutLoss&)>& so_far) {
  const StreamScope scope(rank.input_stream());
  HeldOutLoss loss;
  for (i64 round = 0; loss.micro_batches < micro_batches; ++round) {
    const MicroBatch batch = loader.validation(round);
    const std::vector<double> mine{rank.evaluate(batch), static_cast<double>(batch.counted_targets)};
    const std::vector<std::vector<double>> all = peers.gather(mine);
    for (int r = 0; r < mesh.data && loss.micro_batches < micro_batches; ++r) {
      const std::vector<double>& of = all[static_cast<size_t>(mesh.world_rank(r, 0))];
      loss.sum += of[0];
      loss.targets += static_cast<i64>(of[1]);
      ++loss.micro_batches;
    }
    so_far(loss);
  }
  return loss;
}

}  // namespace spillway::app
