// PlacementSettings says where the user wants data to reside and how a step is scheduled. Plain values, thus thread-safe.
#pragma once
#include <array>
#include <optional>
#include <string>

#include "base/types.h"
#include "offload/tier.h"
#include "parallel/schedule/pipeline.h"

namespace spillway::trainer {

using offload::Tier;

enum class Recompute { automatic, none, block };
enum class OptimizerOverlap { automatic, none, backward, forward };

/// The placement that a --place flag asks for: automatic, one tier, or bytes per tier. Tiers are filled in the order device, host, nvme,
/// and exactly one of them takes the rest.
struct PlacementWish {
  static constexpr i64 kRest = -1;
  bool automatic = true;
  std::array<i64, offload::kTiers> bytes{};  // bytes by tier; kRest for the tier that takes all that remains

  static PlacementWish whole(Tier tier);
  /// Returns the tier if one tier takes everything, else nothing.
  std::optional<Tier> one_tier() const;
  bool uses(Tier tier) const { return !automatic && bytes[static_cast<size_t>(tier)] != 0; }
  bool operator==(const PlacementWish&) const = default;
};

/// Holds what the user asks of the plan: where each kind of data resides, and how a step is scheduled. The planner obeys each member that
/// is set, and chooses a value for each that is automatic or empty.
struct PlacementSettings {
  PlacementWish parameters, gradients, optimizer, activations;
  Recompute recompute = Recompute::automatic;
  OptimizerOverlap overlap = OptimizerOverlap::automatic;
  // the order of micro-batches and blocks, for which there is no option: resolve_order() (pipeline_wish.h) sets it
  std::optional<parallel::Order> order;
  std::optional<i64> prefetch;          // number of blocks whose tensors are prefetched
  std::optional<int> zero_stage;        // the ZeRO stage, 0 to 3
  std::string pipeline_split = "auto";  // number of blocks in each stage, or "auto"
  bool explained = true;                // if nothing fits, the error message says what would help
};

}  // namespace spillway::trainer
