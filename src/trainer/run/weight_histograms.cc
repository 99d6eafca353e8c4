#include "trainer/run/weight_histograms.h"

namespace spillway::trainer {
namespace {

// Returns the histogram of those elements of the parameter that this rank saves in checkpoints.
Histogram part_of(const nn::Parameter& parameter, parallel::Rank& rank) {
  std::vector<Histogram> by_thread(static_cast<size_t>(rank.threads()));
  rank.visit(parameter.id, [&](std::span<const float> weights, int thread) { by_thread[static_cast<size_t>(thread)].add(weights); });
  Histogram all;
  for (const Histogram& one : by_thread) all.add(one);
  return all;
}

}  // namespace

void weight_histograms(const nn::Sequential& model, parallel::Rank& rank, const Peers& peers, const SeeHistogram& see) {
  for (const auto& parameter : model.parameters) {
    if (parameter->frozen) continue;
    Histogram histogram;
    peers.together([&] { histogram = part_of(*parameter, rank); });
    histogram.sums() = peers.sum(std::move(histogram.sums()));
    histogram.largest() = peers.most(std::move(histogram.largest()));
    see(*parameter, histogram);
  }
}

}  // namespace spillway::trainer
