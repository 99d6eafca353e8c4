// Computes a histogram of each parameter's weights, in whichever tier they are stored. All ranks work together, one parameter at a time:
// each rank counts the elements that it would write to a checkpoint. The elements are read in pieces, so that memory holds only these
// pieces and one histogram per thread. The result depends neither on the tiers nor on the number of ranks.
#pragma once
#include <functional>

#include "parallel/run/rank.h"
#include "trainer/events/histogram.h"
#include "trainer/ranks/peers.h"

namespace spillway::trainer {

/// A function of this type receives the histogram of each trained parameter. weight_histograms() calls it in the model's order, on every
/// rank. Must be called only when no update is deferred. An error on one rank is thrown on all ranks (AgreedError).
using SeeHistogram = std::function<void(const nn::Parameter&, const Histogram&)>;
void weight_histograms(const nn::Sequential& model, parallel::Rank& rank, const Peers& peers, const SeeHistogram& see);

}  // namespace spillway::trainer
