// One list of every rank of a world, side by side, as their executors obey them: one FIFO a lane, `after`, and each message and meeting
// waiting for all its sides. Whoever walks says when what was begun has ended: the checker at once, the simulator when its time is over.
// One thread.
#pragma once
#include <optional>
#include <span>

#include "parallel/comm/rank_mesh.h"
#include "parallel/program/program.h"

namespace spillway::parallel {

class WorldWalk {
 public:
  /// A lane of a rank.
  struct Place {
    size_t rank, lane;
  };

  /// By world rank; the lists outlive the walk. No mesh: a rank alone, which waits for nobody.
  WorldWalk(std::span<const List* const> lists, std::optional<Mesh> mesh);

  size_t ranks() const { return ranks_.size(); }
  /// What the lane has come to: its next instruction, once what that waits for is done; null while another one is under way.
  const Instruction* at(Place place) const;
  /// Who begins together what this lane has come to, itself too; none: somebody has not come yet. A message is its sender's to begin, who
  /// is named first; those of a kind between two ranks are matched in the order in which they are sent and received.
  std::vector<Place> party(Place place) const;
  /// Returns the instruction's number in its list.
  u32 begin(Place place);
  void end(Place place);
  /// All lists have.
  bool ended() const;

 private:
  struct Rank {
    const List* list = nullptr;
    std::vector<char> done;
    std::array<std::vector<u32>, kLanes> lanes;
    std::array<size_t, kLanes> next{};
    std::array<bool, kLanes> under_way{};  // the one at `next`
  };
  std::vector<Place> with_receiver(Place sender, const Instruction& send) const;
  u16 pipeline_rank(size_t world) const { return static_cast<u16>(mesh_->pipeline_rank(static_cast<int>(world))); }

  const std::optional<Mesh> mesh_;
  std::vector<Rank> ranks_;
};

}  // namespace spillway::parallel
