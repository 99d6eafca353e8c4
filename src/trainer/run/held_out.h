// Computes the loss of a model on validation data and, for images, its accuracy. The result is bitwise the same on any number of ranks: of
// R data-parallel ranks, rank j % R evaluates micro-batch j, and the losses are added in the order of j. In each round every rank evaluates
// one micro-batch. This holds in the last round too, even if fewer micro-batches than ranks remain, because all ranks must take part in the
// collectives. The surplus results are ignored.
#pragma once
#include <functional>
#include <optional>

#include "data/loader/loader.h"
#include "parallel/comm/rank_mesh.h"
#include "parallel/run/rank.h"
#include "trainer/ranks/peers.h"

namespace spillway::trainer {

struct HeldOutLoss {
  double sum = 0;
  i64 targets = 0, micro_batches = 0;
  /// Counts of images, which are set for image models. `right` counts the images whose target class has the largest logit, `among_five`
  /// those whose target class has one of the five largest. Of two classes with equal logits the class with the lower index ranks first.
  std::optional<i64> right, among_five;
  double mean() const { return sum / static_cast<double>(targets); }
  std::optional<double> accuracy() const { return share(right); }
  std::optional<double> top_5_accuracy() const { return share(among_five); }

 private:
  std::optional<double> share(const std::optional<i64>& of) const {
    return of ? std::optional(static_cast<double>(*of) / static_cast<double>(targets)) : std::nullopt;
  }
};

/// Returns how many micro-batches the validation data of all ranks together has.
i64 held_out_micro_batches(const data::Loader& loader, i64 micro_batch_size);

/// Collective. Evaluates the first `micro_batches` micro-batches of the validation data. `so_far` is called
/// after every round with the sums over all rounds so far. `stops` is called on every rank in each round. If
/// it returns true on any rank, all ranks stop after that round, and the result covers fewer micro-batches.
HeldOutLoss held_out_loss(
    parallel::Rank& rank, const parallel::Mesh& mesh, const Peers& peers, const data::Loader& loader, i64 micro_batches,
    const std::function<void(const HeldOutLoss&)>& so_far = [](const HeldOutLoss&) {},
    const std::function<bool()>& stops = [] { return false; });

}  // namespace spillway::trainer
