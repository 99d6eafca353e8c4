// The loss of a model on held-out windows or images, and how many of these it names right, the same bits on any number of ranks:
// micro-batch j is data-parallel rank j % R's, and their losses are added in order of j. What a rank has beyond the last one to count is
// evaluated, for all meet in it, and left out.
#pragma once
#include <functional>
#include <optional>

#include "app/ranks/peers.h"
#include "data/loader.h"
#include "parallel/comm/rank_mesh.h"
#include "parallel/run/rank.h"

namespace spillway::app {

struct HeldOutLoss {
  double sum = 0;
  i64 targets = 0, micro_batches = 0;
  /// Of image models: targets with the largest logit, or one of the five largest; of equal ones the first counts as larger.
  std::optional<i64> right, among_five;
  double mean() const { return sum / static_cast<double>(targets); }
  std::optional<double> accuracy() const { return share(right); }
  std::optional<double> top_5_accuracy() const { return share(among_five); }

 private:
  std::optional<double> share(const std::optional<i64>& of) const {
    return of ? std::optional(static_cast<double>(*of) / static_cast<double>(targets)) : std::nullopt;
  }
};

/// Of all ranks together.
i64 held_out_micro_batches(const data::Loader& loader, i64 micro_batch_size);

/// The first `micro_batches` of them. All ranks together; `so_far` hears of every round. `stops` is asked on every rank after each round
/// but the last: where one says yes all stop, with fewer micro-batches in the result.
HeldOutLoss held_out_loss(
    parallel::Rank& rank, const parallel::Mesh& mesh, const Peers& peers, const data::Loader& loader, i64 micro_batches,
    const std::function<void(const HeldOutLoss&)>& so_far = [](const HeldOutLoss&) {},
    const std::function<bool()>& stops = [] { return false; });

}  // namespace spillway::app
