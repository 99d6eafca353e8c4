// How a model's weights are spread, counted where they lie, by all ranks together, a parameter at a time: each rank counts what it saves of
// it, in pieces, so that no more is held than those and a histogram a thread. The same histograms whatever lies where on however many
// ranks.
#pragma once
#include <functional>

#include "app/events/histogram.h"
#include "app/ranks/peers.h"
#include "parallel/run/rank.h"

namespace spillway::app {

/// Of each trained parameter in the model's order, on every rank; the rank's state is settled. What fails on one rank fails on all
/// (AgreedError).
using SeeHistogram = std::function<void(const nn::Parameter&, const Histogram&)>;
void weight_histograms(const nn::Sequential& model, parallel::Rank& rank, const Peers& peers, const SeeHistogram& see);

}  // namespace spillway::app
