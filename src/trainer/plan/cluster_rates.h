// Gives the rates of the GPUs and nodes that --cluster describes: what the vendor publishes about the card, times the shares of it that
// training is assumed to reach, and what the user says or cluster.h assumes about a node. Nothing is measured and nothing is read from the
// machine that asks, so every machine gives the same rates. All functions are pure.
#pragma once
#include "trainer/plan/node_rates.h"
#include "trainer/settings/cluster.h"

namespace spillway::trainer {

/// kProductShare is the share of a card's dense peak that large matrix products reach: 716 of 989 TFLOP/s by cuBLAS on an H100 for square
/// products of bf16 of size 4096 (Shankhdhar, github.com/pranjalssh/fast.cu). A block reaches kBlockEfficiency of that. The other shares
/// are round figures of ours: of the bandwidth of a GPU's memory, of PCIe and of NVLink.
constexpr double kProductShare = 0.72, kMemoryShare = 0.9, kLinkShare = 0.85, kNvlinkShare = 0.8;

/// kFp8Speedup is how much faster blocks are assumed to be with fp8 than with bf16: `plan --roofline` gives 1.23 to 1.28 for a step of
/// llama3-8b at 8192 tokens. Products reach twice the peak, but their operands must be rounded, and all else stays as fast as it is.
constexpr double kFp8Speedup = 1.25;

/// Returns the rates of one rank, and a doubt that says that they are not measured. The rates of the drives are those of a whole node.
/// `fp8` says whether linear layers multiply in fp8. Throws Error(usage) if the card cannot.
NodeRates cluster_rates(const Cluster& cluster, const parallel::PlanRequest& request, Tf32 tf32, bool fp8, int threads);

/// Returns the bytes per second, each way, at which a GPU reaches the other GPUs of its node: over NVLink if that joins as many as a node
/// has, else over PCIe.
double node_port_bytes_per_s(const Cluster& cluster);

/// Returns the rates of a node's drives, all together.
DiskRates cluster_disk(const Cluster& cluster);

}  // namespace spillway::trainer
